# SPDX-License-Identifier: Apache-2.0
"""What the program says to somebody who knows the README alone: hints, refusals that name the
option to use, and what is left after Ctrl-C."""

import shutil
import signal
import subprocess
import time

import pytest

from e2e_support import copy_of, tree_of, version_directory, write_safetensors

V0, V1, V2 = (version_directory("bf16", version) for version in range(3))


def publish(store, *more):
    return ["publish", "--store", store, "--base", V0, "--target", V1, *more]


@pytest.mark.parametrize("arguments, words", [
    (publish("s", "--owners", 2, "--version", 1), ["--session"]),
    (publish("s", "--owners", 2, "--session", "a"), ["--version"]),
    (publish("s", "--owner", 1), ["owner 1 of 1", "--owners"]),
    (publish("dir:~/s"), ["--store", "'dir:~/s'", "shell"]),
    (publish("~/s"), ["--store", "'~/s'"]),
    (publish("~"), ["--store", "'~'"]),
    (["inspect", "~/x"], ["PATH", "'~/x'"]),
    (["diff", V0, "~/x"], ["TARGET", "'~/x'"]),
    (["verify", "--checkpoint", V0, "--against", "~/x"], ["--against"]),
    (["generate", "--output", "~/x"], ["--output"]),
    (["bench", "--directory", "~/x"], ["--directory"]),
    (["generate", "--output", "x", "--size", 10], ["--size", "65536", "'10'"]),
    (["bench", "--size", 0], ["--size", "65536", "'0'"]),
    (["apply", "--store", "s", "--checkpoint", V0, "--output", ""], ["--output", "empty"]),
    (["apply", "--store", "s", "--checkpoint", V0, "--lineage", ""], ["--lineage", "empty"]),
    (["diff", V0, ""], ["TARGET", "empty"]),
])
def test_hints(segue, arguments, words):
    message = segue.fails("invalid_argument", *arguments)
    assert all(word in message for word in words), message


def test_plans_that_differ_name_both_paths(segue, tmp_path):
    pair = [write_safetensors(tmp_path / name, {name: ("U8", [2], b"ab")}) for name in "xy"]
    message = segue.fails("invalid_argument", "publish", "--store", tmp_path / "store",
                          "--base", pair[0], "--target", pair[1])
    assert all(f"'{path}'" in message for path in pair)


@pytest.mark.parametrize("content, words", [
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"),
    (b"<!DOCTYPE html><html><body>Not found</body></html>", "HTML")])
def test_what_is_no_safetensors_file(segue, tmp_path, content, words):
    (tmp_path / "model.safetensors").write_bytes(content)
    message = segue.fails("corruption", "verify", "--checkpoint", tmp_path)
    assert words in message and "model.safetensors" in message


def test_chunk_size_of_a_lineage_stays(segue, tmp_path):
    segue(*publish(tmp_path / "store", "--chunk-size", "64KiB"))
    again = ["publish", "--store", tmp_path / "store", "--base", V1, "--target", V2]
    assert segue(*again, "--chunk-size", "1MiB")["warnings"] != []
    assert segue(*again)["warnings"] == []


def test_verify_says_what_it_compared(segue, tmp_path):
    text = segue.text("verify", "--checkpoint", V0, "--against", copy_of(V0, tmp_path / "copy"))
    assert "byte for byte the same: model" in text and "tokenizer) were not compared" in text
    report = segue("verify", "--checkpoint", V0, "--against", tmp_path / "copy")
    assert report["files"] == sorted(path.name for path in V0.iterdir())
    message = segue.fails("version_mismatch", "verify", "--checkpoint", V0, "--against", V1)
    assert "differs" in message


def test_apply_says_what_it_did(segue, trace_stores, tmp_path):
    apply = ["apply", "--store", trace_stores["bf16"], "--checkpoint", V0, "--to", 0]
    text = segue.text(*apply, "--output", tmp_path / "output")
    assert "a copy" in text and str(V0) in text
    engine = copy_of(V0, tmp_path / "engine")
    apply = ["apply", "--store", trace_stores["bf16"], "--checkpoint", engine, "--to", 1]
    assert "over 1 version\n" in segue.text(*apply)


def test_resolve_of_what_was_not_begun(segue, tmp_path):
    engine = copy_of(V0, tmp_path / "engine")
    (engine / ".segue" / "apply").mkdir(parents=True)
    text = segue.text("resolve", "--checkpoint", engine)
    assert "no weight was being changed" in text and "chunks" not in text


def test_inspect_inside_a_store(segue, tmp_path, monkeypatch):
    store = tmp_path / "store"
    store.mkdir()
    assert segue("inspect", store) == {"kind": "store", "lineages": []}
    segue(*publish(store, "--lineage", "run-7"))
    payload = next((store / "run-7" / "payloads").rglob("*-of-*"))
    described = segue("inspect", payload)
    assert described["kind"] == "payload" and described["rows"] > 0
    lineage = segue("inspect", store / "run-7")
    assert lineage["kind"] == "lineage" and lineage["newest"] == 1
    monkeypatch.chdir(store / "run-7")
    assert segue("inspect", ".") == lineage == segue("inspect", f"{store}/run-7/")
    alone = shutil.copy(payload, tmp_path / "payload")
    assert "--plan" in segue.fails("invalid_argument", "inspect", alone)


def test_missing_payload_names_itself_once(segue, tmp_path):
    store = tmp_path / "store"
    segue(*publish(store))
    payload = next((store / "default" / "payloads").rglob("*-of-*"))
    payload.unlink()
    message = segue.fails("not_found", "apply", "--store", store, "--checkpoint",
                          copy_of(V0, tmp_path / "engine"))
    name = str(payload.relative_to(store))
    assert message.count(f"'{name}'") == 1


def interrupt(segue, arguments, begun, stop=signal.SIGINT):
    """Runs, waits until begun() holds, sends the signal; what was said on stderr."""
    # Whoever started these tests may ignore the signals, as shells do for what runs behind.
    command = ["env", "--default-signal=INT,TERM", *segue.command(*arguments)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True) as process:
        while not begun() and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(stop)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + stop, (process.returncode, errors)
        return errors


@pytest.mark.parametrize("stop", (signal.SIGINT, signal.SIGTERM))
def test_generate_interrupted(segue, tmp_path, stop):
    output = tmp_path / "run"
    arguments = ["generate", "--output", output, "--size", "256MiB", "--steps", 3]
    errors = interrupt(segue, arguments, lambda: any(output.glob("v*/*")), stop)
    assert "interrupted" in errors and not output.exists()
    (output / "notes").mkdir(parents=True)
    before = tree_of(output)
    interrupt(segue, arguments, lambda: any(output.glob("v*/*")), stop)
    assert tree_of(output) == before and not list(output.glob("v*"))


def test_bench_interrupted(segue, tmp_path):
    arguments = ["bench", "--size", "64MiB", "--directory", tmp_path]
    errors = interrupt(segue, arguments, lambda: any(tmp_path.rglob("store")))
    assert "interrupted" in errors and not any(tmp_path.iterdir())


def test_apply_interrupted(segue, tmp_path):
    base, target = segue("generate", "--output", tmp_path / "run", "--preset", "bf16-10",
                         "--size", "64MiB")["directories"]
    segue("publish", "--store", tmp_path / "store", "--base", base, "--target", target)
    engine = copy_of(base, tmp_path / "engine")
    apply = ["apply", "--store", tmp_path / "store", "--checkpoint", engine, "--threads", 1]
    errors = interrupt(segue, apply, (engine / ".segue" / "apply").exists)
    assert f"segue resolve --checkpoint {engine}" in errors
    segue("resolve", "--checkpoint", engine)
    assert segue("verify", "--checkpoint", engine,
                 "--store", tmp_path / "store")["version"] in (0, 1)
