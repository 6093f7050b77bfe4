# SPDX-License-Identifier: Apache-2.0
"""Wrong inputs: the exit code, the sentence, and that nothing changed."""

import json
import os
import pty
import shutil
import time

import pytest

from e2e_support import (check_failure, copy_of, files_of, find_byte, flip_bit, same_files,
                         tree_of, version_directory, write_safetensors)

V0, V1, V2, V3 = (version_directory("bf16", version) for version in range(4))


def publish(store, base, target, *more):
    return ["publish", "--store", store, "--base", base, "--target", target, *more]


@pytest.mark.parametrize("arguments, words", [
    ([], ["expected a verb", "found nothing"]),
    (["aply"], ["expected a verb", "'aply'"]),
    (["apply", "--checkpoint", "x"], ["--store is required", "segue apply --help"]),
    (["apply", "--store", "x", "--checkpoint", "y", "--to", "-1"], ["--to", "'-1'"]),
    (["apply", "--store", "x", "--checkpoint", "y", "--to", "0x10"], ["--to", "'0x10'"]),
    (["diff", "a", "b", "--chunk-size", "1XB"], ["--chunk-size", "64MiB", "'1XB'"]),
    (["diff", "a", "b", "--chunk-size", "0.3"], ["--chunk-size", "whole number", "'0.3'"]),
    (["diff", "a", "b", "--chunk-size", "1e30"], ["--chunk-size", "9e18", "'1e30'"]),
    (["diff", "a", "b", "c"], ["c"]),
    (["verify", "--checkpoint", "x", "--version", "1"], ["--version", "--store"]),
    (["generate"], ["--output", "found none"]),
    (["predict", "--model-bytes", "1GB", "--density", "0.085%"],
     ["--density: expected a number, found '0.085%'; see segue predict --help"]),
    (["publish", "--store", "x", "--watch", "y", "--settle", "soon"],
     ["--settle: expected", "found 'soon'"]),
    (["generate", "--output", "x", "--preset", "bf17"], ["bf17"]),
])
def test_command_lines_that_make_no_sense(segue, arguments, words):
    message = segue.fails("invalid_argument", *arguments)
    assert all(word in message for word in words), message


def test_sizes_have_suffixes(segue):
    sizes = ("64KiB", "64k", "65536", "6.5536e4", "0.0625MiB", "65.536kB")
    reports = [segue("diff", V0, V1, "--chunk-size", size) for size in sizes]
    assert all(report == reports[0] for report in reports)


def test_things_that_are_not_there(segue, trace_stores, tmp_path):
    store, missing = trace_stores["bf16"], tmp_path / "missing"
    for arguments in (publish(tmp_path / "new", missing, V1),
                      publish(tmp_path / "new", V0, missing),
                      ["diff", missing, V0], ["inspect", missing],
                      ["verify", "--checkpoint", missing],
                      ["apply", "--store", store, "--checkpoint", missing],
                      ["apply", "--store", missing, "--checkpoint", V0, "--output", tmp_path / "o"],
                      ["resolve", "--checkpoint", missing]):
        assert str(missing) in segue.fails("not_found", *arguments)
    assert not missing.exists() and not (tmp_path / "o").exists()


def test_unknown_names(segue, trace_stores, tmp_path):
    store = trace_stores["bf16"]
    output = ["--checkpoint", V0, "--output", tmp_path / "output"]
    assert "version 9" in segue.fails("not_found", "apply", "--store", store, *output, "--to", 9)
    assert "'nobody'" in segue.fails("not_found", "apply", "--store", store, *output,
                                     "--lineage", "nobody")
    message = segue.fails("invalid_argument", *publish(tmp_path / "s", V0, V1, "--profile", "lzma"))
    assert "'lzma'" in message and "sparse-zstd" in message
    message = segue.fails("unsupported", "apply", "--store", "ftp://host/x", *output)
    assert "ftp" in message
    assert not (tmp_path / "output").exists()


def test_output_must_be_new(segue, trace_stores, tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    message = segue.fails("invalid_argument", "apply", "--store", trace_stores["bf16"],
                          "--checkpoint", V0, "--output", output)
    assert str(output) in message and not any(output.iterdir())


def test_version_published_twice(segue, tmp_path):  # case D5
    store = tmp_path / "store"
    segue(*publish(store, V0, V1))
    segue(*publish(store, V1, V2))
    before = tree_of(store / "default" / "versions")
    again = segue(*publish(store, V1, V2, "--version", 2))
    assert again["already_published"]
    message = segue.fails("invalid_argument", *publish(store, V1, V3, "--version", 2))
    assert "version 2" in message and "other content" in message
    assert tree_of(store / "default" / "versions") == before


def test_published_again_and_forked(segue, tmp_path):  # case D5
    store = tmp_path / "store"
    for base, target in ((V0, V1), (V1, V2)):
        segue(*publish(store, base, target))
    before = tree_of(store)
    again = segue(*publish(store, V0, V1))  # Not the newest.
    assert again["already_published"] and again["target_version"] == 1
    message = segue.fails("invalid_argument", *publish(store, V1, V3))
    assert "is version 1" in message and "newest is 2" in message and "--branch" in message
    assert tree_of(store) == before
    done = segue.run(*publish(store, V1, V3, "--branch"))
    assert done.returncode == 0 and "warning" in done.stderr and "rebuilt" in done.stderr
    cut_off = copy_of(V2, tmp_path / "cut-off")
    message = segue.fails("version_mismatch", "apply", "--store", store, "--checkpoint", cut_off)
    assert "no way" in message and "--output" in message
    assert tree_of(cut_off) == tree_of(V2)
    message = segue.fails("version_mismatch", "apply", "--store", store, "--checkpoint", cut_off,
                          "--to", 1)
    assert "only goes forward" in message


def test_base_that_is_no_version(segue, tmp_path):
    store = tmp_path / "store"
    segue(*publish(store, V0, V1))
    message = segue.fails("version_mismatch", *publish(store, V2, V3))
    assert "digest" in message and "no version" in message
    assert segue("inspect", store)["lineages"][0]["newest"] == 1
    engine = copy_of(V3, tmp_path / "engine")
    message = segue.fails("version_mismatch", "apply", "--store", store, "--checkpoint", engine)
    assert str(engine) in message and same_files(engine, V3)


def test_flipped_bit(segue, trace_stores, tmp_path):  # case D9
    store = trace_stores["bf16"]
    for changed in (True, False):
        engine = copy_of(V0, tmp_path / f"engine-{changed}")
        segue("apply", "--store", store, "--checkpoint", engine, "--to", 1)
        name, offset, tensor = find_byte(V1, V2, changed)
        flip_bit(engine / name, offset)
        before = files_of(engine)
        apply = ["apply", "--store", store, "--checkpoint", engine, "--to", 2]
        assert "digest" in segue.fails("version_mismatch", *apply)
        assert files_of(engine) == before
        if changed:  # What is touched is proven even where the state is trusted.
            assert f"'{tensor}'" in segue.fails("version_mismatch", *apply, "--trust-state")
            assert files_of(engine) == before
        else:
            assert not segue(*apply, "--trust-state")["full_scan"]
            assert "--against" in segue.fails("version_mismatch", "verify", "--checkpoint", engine,
                                              "--store", store)
            message = segue.fails("version_mismatch", "verify", "--checkpoint", engine, "--against",
                                  V2)
            assert f"'{tensor}'" in message


def test_pruned_chain(segue, tmp_path):  # case D3
    store = tmp_path / "store"
    for version in range(1, 9):
        report = segue(*publish(store, version_directory("bf16", version - 1),
                                version_directory("bf16", version), "--retain", 3))
    assert report["pruned"] == [5]
    fresh = copy_of(V0, tmp_path / "fresh")
    message = segue.fails("not_found", "apply", "--store", store, "--checkpoint", fresh)
    assert "version 5" in message and same_files(fresh, V0)
    late = copy_of(version_directory("bf16", 5), tmp_path / "late")
    (store / "default" / "versions" / "0000000007.json").rename(tmp_path / "aside")
    message = segue.fails("not_found", "apply", "--store", store, "--checkpoint", late)
    assert "version 7" in message and same_files(late, version_directory("bf16", 5))
    (tmp_path / "aside").rename(store / "default" / "versions" / "0000000007.json")
    assert segue("apply", "--store", store, "--checkpoint", late)["path"] == [6, 7, 8]
    assert same_files(late, version_directory("bf16", 8))


def damage_payload(payload):
    flip_bit(payload, 1000)


def cut_payload(payload):
    payload.write_bytes(payload.read_bytes()[:-1])


@pytest.mark.parametrize("damage, codes", [
    (damage_payload, ["corruption"]), (cut_payload, ["corruption"]),
    (os.remove, ["not_found", "corruption"])])
def test_broken_chain(segue, trace_stores, tmp_path, damage, codes):
    store = copy_of(trace_stores["bf16"], tmp_path / "store")
    manifest = segue("inspect", store / "default" / "versions" / "0000000003.json")
    name = manifest["payloads"][0]["object"]
    (store / name).chmod(0o644)
    damage(store / name)
    engine = copy_of(V0, tmp_path / "engine")
    arguments = ["apply", "--store", store, "--checkpoint", engine]
    done = segue.run(*arguments, "--json")
    code = json.loads(done.stdout)["error"]["code"]
    assert code in codes
    assert name in check_failure(code, done.returncode, done.stdout, done.stderr)
    assert same_files(engine, V0)
    segue(*arguments, "--to", 2)
    assert same_files(engine, V2)


WRONG_TENSORS = {  # case C4
    "dtype": {"w": ("F16", [4, 8], bytes(64)), "s": ("F32", [], bytes(4))},
    "shape": {"w": ("BF16", [8, 4], bytes(64)), "s": ("F32", [], bytes(4))},
    "rows": {"w": ("BF16", [5, 8], bytes(80)), "s": ("F32", [], bytes(4))},
    "scalar": {"w": ("BF16", [4, 8], bytes(64)), "s": ("F32", [1], bytes(4))},
    "missing": {"w": ("BF16", [4, 8], bytes(64))},
}


@pytest.mark.parametrize("kind", WRONG_TENSORS)
def test_other_dtype_or_shape(segue, tmp_path, kind):  # case C4
    right = {"w": ("BF16", [4, 8], bytes(64)), "s": ("F32", [], bytes(4))}
    base = write_safetensors(tmp_path / "base", right)
    target = write_safetensors(tmp_path / "target", WRONG_TENSORS[kind])
    message = segue.fails("invalid_argument", *publish(tmp_path / "store", base, target))
    tensor = "w" if kind in ("dtype", "shape", "rows") else "s"
    assert f"'{tensor}'" in message and right[tensor][0] in message
    assert not (tmp_path / "store" / "default" / "versions").exists()


def owner(store, number, session, *more):
    return publish(store, V0, V1, "--version", 1, "--owners", 2, "--owner", number,
                   "--session", session, *more)


def test_two_owners(segue, tmp_path):  # case G7
    store = tmp_path / "store"
    first = segue.start(*owner(store, 0, "a"), "--json")
    time.sleep(0.2)
    assert not (store / "default" / "versions").exists()
    second = segue(*owner(store, 1, "a"))
    output, errors = first.communicate(timeout=60)
    assert first.returncode == 0, errors
    assert json.loads(output)["committed"] and second["committed"]
    engine = copy_of(V0, tmp_path / "engine")
    segue("apply", "--store", store, "--checkpoint", engine)
    assert same_files(engine, V1)


def read_terminal(terminal):
    text = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # The other side is closed.
            piece = b""
        if not piece:
            os.close(terminal)
            return text.decode()
        text += piece


def test_dead_owner_and_progress_bar(segue, tmp_path):  # case G7
    """Owner 1 never comes: a clear error after the timeout, and no version. Long enough to see the
    progress bar on a terminal, which must be gone at the end."""
    store = tmp_path / "store"
    terminal, other_side = pty.openpty()
    arguments = segue.command(*owner(store, 0, "a", "--owner-timeout", 1.5))
    process = os.posix_spawn(arguments[0], arguments, {**os.environ, "TERM": "xterm"},
                             file_actions=[(os.POSIX_SPAWN_DUP2, other_side, 2)])
    os.close(other_side)
    text = read_terminal(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 8
    drawn, _, rest = text.rpartition("\r\x1b[K")
    assert " s" in drawn and "owner 1 of 2" in rest and "\x1b" not in rest
    assert not (store / "default" / "versions").exists()
    message = segue.fails("unavailable", *owner(store, 0, "a", "--owner-timeout", 0.1))
    assert "owner 1 of 2" in message and "no version was published" in message
    message = segue.fails("unavailable", *owner(store, 1, "a", "--owner-timeout", 0.1))
    assert "owner 0 of 2" in message
    # The same name again: what the first attempt left does not count.
    second = segue.start(*owner(store, 1, "a"))
    assert segue(*owner(store, 0, "a"))["committed"]
    assert second.communicate(timeout=60)[1] == "" and second.returncode == 0


def test_no_progress_bar_where_there_is_no_terminal(segue, tmp_path):
    done = segue.run(*owner(tmp_path / "store", 0, "a", "--owner-timeout", 1.3))
    assert done.returncode == 8 and "\r" not in done.stderr and done.stdout == ""


def test_result_that_cannot_be_written(segue):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    command = " ".join(segue.command("diff", V0, V1, "--json")) + " >/dev/full 2>&1"
    assert os.waitstatus_to_exitcode(os.system(command)) == 8


def test_names_do_not_steer_the_terminal(segue, tmp_path):
    done = segue.run("inspect", str(tmp_path / "a\x1b[31m\nb"))
    assert done.returncode == 3 and "\x1b" not in done.stderr and done.stderr.count("\n") == 1


def test_checkpoint_in_use(segue, trace_stores, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    engine = copy_of(V0, tmp_path / "engine")
    segue("apply", "--store", trace_stores["bf16"], "--checkpoint", engine, "--to", 1)
    with open(engine / ".segue" / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        message = segue.fails("unavailable", "apply", "--store", trace_stores["bf16"],
                              "--checkpoint", engine)
    assert str(engine) in message and same_files(engine, V1)
    shutil.rmtree(engine)
