# SPDX-License-Identifier: Apache-2.0
"""The main job, from files to files: publish a chain, apply it in place and to new directories, and
compare every byte with the trainer's files, read here."""

import json
import os
import re
import shutil

import pytest

from e2e_support import (copy_of, files_of, same_files, tree_of, version_directory,
                         write_safetensors)

FORMATS = ("bf16", "fp8", "nvfp4")


@pytest.mark.parametrize("name", FORMATS)
def test_every_step_in_place(segue, trace_stores, tmp_path, name):
    engine = copy_of(version_directory(name, 0), tmp_path / "engine")
    for version in range(1, 9):
        report = segue("apply", "--store", trace_stores[name], "--checkpoint", engine,
                       "--to", version)
        assert report["base_version"] == version - 1 and report["path"] == [version]
        assert same_files(engine, version_directory(name, version))
        verified = segue("verify", "--checkpoint", engine, "--store", trace_stores[name],
                         "--version", version, "--against", version_directory(name, version))
        assert verified["version"] == version and verified["layout_matches"]
        assert verified["digest"] == report["target_digest"]


@pytest.mark.parametrize("name", FORMATS)
def test_one_combined_step(segue, trace_stores, tmp_path, name):
    engine = copy_of(version_directory(name, 0), tmp_path / "engine")
    report = segue("apply", "--store", trace_stores[name], "--checkpoint", engine, "--to", 5)
    assert report["path"] == [1, 2, 3, 4, 5]
    assert same_files(engine, version_directory(name, 5))
    report = segue("apply", "--store", trace_stores[name], "--checkpoint", engine,
                   "--trust-state")
    assert report["path"] == [6, 7, 8] and not report["full_scan"]
    assert same_files(engine, version_directory(name, 8))


@pytest.mark.parametrize("name", FORMATS)
def test_to_a_new_directory(segue, trace_stores, tmp_path, name):
    base = copy_of(version_directory(name, 0), tmp_path / "base")
    before = tree_of(base)
    report = segue("apply", "--store", f"dir:{trace_stores[name]}", "--checkpoint", base,
                   "--output", tmp_path / "output")
    assert report["base_version"] == 0 and report["target_version"] == 8 and report["full_scan"]
    assert same_files(tmp_path / "output", version_directory(name, 8))
    assert tree_of(base) == before
    again = segue("apply", "--store", trace_stores[name], "--checkpoint", tmp_path / "output")
    assert again["path"] == [] and again["target_digest"] == report["target_digest"]


@pytest.mark.parametrize("profile", ("sparse-zstd", "snappy-zstd", "lz4-zstd", "zstd"))
def test_every_profile_gives_the_same_bits(segue, tmp_path, profile):
    store, engine = tmp_path / "store", tmp_path / "engine"
    copy_of(version_directory("bf16", 0), engine)
    for version in (1, 2):
        segue("publish", "--store", store, "--base", version_directory("bf16", version - 1),
              "--target", version_directory("bf16", version), "--profile", profile,
              "--lineage", "run-7", "--chunk-size", "64KiB", "--threads", 2)
    report = segue("apply", "--store", store, "--checkpoint", engine, "--lineage", "run-7")
    assert report["lineage"] == "run-7" and report["path"] == [1, 2]
    assert same_files(engine, version_directory("bf16", 2))


def test_generated_chain(segue, tmp_path):
    generated = segue("generate", "--output", tmp_path / "run", "--preset", "nvfp4-0.085",
                      "--size", "8MiB", "--steps", 2, "--shards", 3, "--seed", 5)
    base, first, second = generated["directories"]
    for old, new in ((base, first), (first, second)):
        segue("publish", "--store", tmp_path / "store", "--base", old, "--target", new)
    engine = copy_of(base, tmp_path / "engine")
    segue("apply", "--store", tmp_path / "store", "--checkpoint", engine)
    assert same_files(engine, second)


def test_a_step_that_changes_nothing_is_a_version(segue, tmp_path):  # case D7
    store = tmp_path / "store"
    for base, target in ((0, 1), (1, 1), (1, 2)):
        segue("publish", "--store", store, "--base", version_directory("bf16", base),
              "--target", version_directory("bf16", target))
    engine = copy_of(version_directory("bf16", 1), tmp_path / "engine")
    report = segue("apply", "--store", store, "--checkpoint", engine, "--to", 2)
    assert report["target_version"] == 2 and same_files(engine, version_directory("bf16", 1))
    segue("apply", "--store", store, "--checkpoint", engine)
    assert same_files(engine, version_directory("bf16", 2))


def test_another_layout_goes_to_a_new_directory(segue, tmp_path):  # case C6
    tensors = {"a": ("BF16", [64], bytes(128)), "b": ("U8", [3], b"\1\2\3")}
    base = write_safetensors(tmp_path / "base", tensors)
    changed = {"b": ("U8", [3], b"\1\7\3"), "a": ("BF16", [64], bytes(128))}
    target = write_safetensors(tmp_path / "target", changed, metadata={"step": "2"})
    segue("publish", "--store", tmp_path / "store", "--base", base, "--target", target)
    before = files_of(base)
    message = segue.fails("invalid_argument", "apply", "--store", tmp_path / "store",
                          "--checkpoint", base)
    assert "--output" in message and files_of(base) == before
    segue("apply", "--store", tmp_path / "store", "--checkpoint", base, "--output",
          tmp_path / "output")
    assert same_files(tmp_path / "output", target)


def test_hard_linked_checkpoint(segue, trace_stores, tmp_path):
    other = copy_of(version_directory("bf16", 0), tmp_path / "other")
    engine = tmp_path / "engine"
    shutil.copytree(other, engine, copy_function=os.link)
    done = segue.run("apply", "--store", trace_stores["bf16"], "--checkpoint", engine)
    assert done.returncode == 0, done.stderr
    assert "segue apply: warning: " in done.stderr
    assert same_files(engine, version_directory("bf16", 8))
    assert same_files(other, version_directory("bf16", 0))


def test_hugging_face_cache(segue, trace_stores, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, (name, content) in enumerate(files_of(version_directory("fp8", 0)).items()):
        (blobs / str(number)).write_bytes(content)
        (snapshot / name).symlink_to(f"../../blobs/{number}")
    before = tree_of(blobs)
    segue("apply", "--store", trace_stores["fp8"], "--checkpoint", snapshot)
    assert same_files(snapshot, version_directory("fp8", 8))
    assert tree_of(blobs) == before


REPORT_KEYS = {
    "diff": {"total", "by_dtype", "by_class", "xor_bits", "gaps", "one_ulp", "entropy_bound_bytes",
             "payload_bytes"},
    "publish": {"lineage", "base_version", "target_version", "base_digest", "target_digest",
                "already_published", "committed", "model_bytes", "payload_bytes",
                "published_bytes", "changed_chunks", "changed_elements", "open_s", "encode_s",
                "commit_s", "anchor_s", "anchors", "pruned", "warnings"},
    "apply": {"lineage", "base_version", "target_version", "target_digest", "path",
              "resolved_first", "full_scan", "payload_bytes", "staged_bytes", "changed_chunks",
              "changed_elements", "locate_s", "fetch_s", "stage_s", "preflight_s", "journal_s",
              "apply_s", "sync_s", "warnings"},
    "verify": {"digest", "plan", "model_bytes", "version", "layout_matches", "files",
               "seconds", "warnings"},
    "resolve": {"outcome", "version", "chunks_at_base", "chunks_at_target", "chunks_mixed"},
    "generate": {"directories", "steps", "model_bytes", "seconds"},
    "bench": {"model_bytes", "preset", "threads", "kernels", "density", "changed_elements",
              "entropy_bound_bytes", "read_gbps", "copy_gbps", "compare_s", "copy_s", "floor_s",
              "verified", "profiles", "baselines"},
}


def test_reports_have_their_keys_and_texts(segue, tmp_path):
    store, engine = tmp_path / "store", copy_of(version_directory("bf16", 0), tmp_path / "engine")
    pair = [version_directory("bf16", 0), version_directory("bf16", 1)]
    calls = {
        "diff": (pair, "entropy bound"),
        "publish": (["--store", store, "--base", pair[0], "--target", pair[1]], "payload"),
        "apply": (["--store", store, "--checkpoint", engine], "already"),
        "verify": (["--checkpoint", engine, "--store", store], "version  1"),
        "resolve": (["--checkpoint", engine], "no apply was interrupted"),
        "generate": (["--output", tmp_path / "run", "--size", "1MiB"], "changed"),
    }
    for verb, (arguments, words) in calls.items():
        assert set(segue(verb, *arguments)) == REPORT_KEYS[verb], verb
        if verb in ("generate", "publish"):  # Write once.
            arguments[1] = tmp_path / f"another-{verb}"
        assert words in segue.text(verb, *arguments), verb


def test_apply_shows_its_stages(segue, trace_stores, tmp_path):
    engine = copy_of(version_directory("nvfp4", 0), tmp_path / "engine")
    text = segue.text("apply", "--store", trace_stores["nvfp4"], "--checkpoint", engine)
    stages = ("locate", "fetch", "stage", "preflight", "journal", "apply = pause", "sync")
    assert all(f"\n  {stage} " in text for stage in stages), text


def test_diff_counts_what_python_counts(segue):
    report = segue("diff", version_directory("bf16", 0), version_directory("bf16", 1))
    changed = 0
    for name, old in files_of(version_directory("bf16", 0)).items():
        if name.endswith(".safetensors"):
            new = files_of(version_directory("bf16", 1))[name]
            changed += sum(old[i:i + 2] != new[i:i + 2] for i in range(0, len(old), 2))
    assert report["total"]["changed"] == changed == report["by_dtype"]["BF16"]["changed"]
    assert set(report["payload_bytes"]) == {"sparse-zstd", "snappy-zstd", "lz4-zstd", "zstd"}
    assert sum(report["xor_bits"]) >= changed
    assert 0 < report["entropy_bound_bytes"] < report["payload_bytes"]["lz4-zstd"]


def test_diff_promises_what_publish_sends(segue, tmp_path):
    pair = [version_directory("bf16", 0), version_directory("bf16", 1)]
    promised = segue("diff", *pair)["payload_bytes"]
    for profile, size in promised.items():
        report = segue("publish", "--store", tmp_path / profile, "--base", pair[0],
                       "--target", pair[1], "--profile", profile)
        assert report["payload_bytes"] == size, profile


def test_inspect_knows_its_own_files(segue, trace_stores):
    store = trace_stores["bf16"]
    assert segue("inspect", store)["kind"] == "store"
    assert segue("inspect", version_directory("bf16", 0))["kind"] == "checkpoint"
    lineage = store / "default"
    manifest = segue("inspect", lineage / "versions" / "0000000003.json")
    assert manifest["kind"] == "manifest" and manifest["target_version"] == 3
    plan = next((lineage / "plans").iterdir())
    assert segue("inspect", plan)["kind"] == "plan"
    assert segue("inspect", next((lineage / "layouts").iterdir()))["kind"] == "layout"
    payload = store / manifest["payloads"][0]["object"]
    assert segue("inspect", payload, "--plan", plan)["kind"] == "payload"
    assert json.loads(segue.text("inspect", payload, "--plan", plan))["rows"] > 0


def test_bench_on_generated_data_and_on_the_trace(segue, trace):
    report = segue("bench", "--size", "4MiB", "--preset", "bf16-1", "--repeats", 1)
    assert set(report) == REPORT_KEYS["bench"] and report["verified"]
    assert set(report["profiles"]) == {"sparse-zstd", "snappy-zstd", "lz4-zstd", "zstd"}
    assert set(report["profiles"]["zstd"]) == {
        "payload_bytes", "staged_bytes", "encode_s", "fetch_s", "stage_s", "preflight_s",
        "pause_s", "publisher_peak_bytes", "receiver_peak_bytes"}
    assert set(report["baselines"]) == {"full_reload", "disk_delta"}
    assert set(report["baselines"]["disk_delta"]) == {"payload_bytes", "total_s", "pause_s"}
    text = segue.text("bench", "--trace", trace / "bf16", "--size", "1MiB", "--repeats", 1)
    assert "verified: every profile" in text


def test_list_presets(segue):
    presets = segue("generate", "--list-presets")["presets"]
    assert {"name", "format", "density", "summary"} == set(presets[0])
    assert "bf16-1" in segue.text("generate", "--list-presets")


def test_version_and_help(segue):
    assert re.fullmatch(r"segue 0\.[\d.]+, with(out)? CUDA\n", segue.text("--version"))
    text = segue.text("--help")
    for verb in ("diff", "publish", "apply", "verify", "inspect", "resolve", "generate", "bench"):
        assert f"\n  {verb} " in text
        assert "--json" in segue.text(verb, "--help")
    assert "Exit codes" in text
