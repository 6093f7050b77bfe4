# SPDX-License-Identifier: Apache-2.0
"""`segue checkpoint` and `segue restore`: a version as one file, and a full checkpoint again. The
file is read here with Python's own tar reader."""

import json
import tarfile

import pytest

from e2e_support import files_of, version_directory


@pytest.mark.parametrize("name", ("bf16", "fp8", "nvfp4"))
def test_there_and_back(segue, trace_stores, tmp_path, name):
    file, output = tmp_path / "v5.segue", tmp_path / "full"
    report = segue("checkpoint", "--store", trace_stores[name], "--version", 5, "--output", file)
    assert report["version"] == 5 and report["steps"] == 5
    assert report["file_bytes"] == file.stat().st_size
    restored = segue("restore", "--file", file, "--base", version_directory(name, 0),
                     "--output", output)
    assert restored["version"] == 5 and restored["digest"] == report["digest"]
    assert files_of(output) == files_of(version_directory(name, 5))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "v5.segue"]


def test_any_tar_reader_lists_it(segue, trace_stores, tmp_path):
    file = tmp_path / "newest.segue"
    segue("checkpoint", "--store", trace_stores["bf16"], "--output", file)
    with tarfile.open(file) as archive:
        names = archive.getnames()
        assert names[0] == "default/lineage.json"
        assert names[-1] == "default/versions/0000000008.json"
        manifest = json.load(archive.extractfile(names[-1]))
        payload = archive.getmember(manifest["payloads"][0]["object"])
    assert manifest["base_version"] == 0 and payload.size == manifest["payloads"][0]["size"]
    described = segue("inspect", file)
    assert described["kind"] == "delta-checkpoint"
    assert [entry["version"] for entry in described["lineages"][0]["versions"]] == [8]


def test_repacked_by_another_tar(segue, trace_stores, tmp_path):
    """A store that somebody packed by hand is one too."""
    file = tmp_path / "store.tar"
    with tarfile.open(file, "w", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(trace_stores["bf16"] / "default", "default")
    output = tmp_path / "full"
    segue("apply", "--store", f"file:{file}", "--checkpoint", version_directory("bf16", 3),
          "--to", 6, "--output", output)
    assert files_of(output) == files_of(version_directory("bf16", 6))


def test_what_does_not_fit_is_refused(segue, trace_stores, tmp_path):
    file = tmp_path / "v2.segue"
    segue("checkpoint", "--store", trace_stores["bf16"], "--version", 2, "--output", file)
    message = segue.fails("version_mismatch", "restore", "--file", file,
                          "--base", version_directory("bf16", 4), "--output", tmp_path / "x")
    base = segue("verify", "--checkpoint", version_directory("bf16", 0))["digest"]
    assert f"goes on from version 0 alone, digest {base}" in message
    segue.fails("invalid_argument", "checkpoint", "--store", trace_stores["bf16"], "--output", file)
    segue.fails("invalid_argument", "checkpoint", "--store", trace_stores["bf16"], "--version", 0,
                "--output", tmp_path / "zero")
    segue.fails("not_found", "checkpoint", "--store", trace_stores["bf16"], "--version", 77,
                "--output", tmp_path / "none")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    segue.fails("corruption", "restore", "--file", file, "--base", version_directory("bf16", 0),
                "--output", tmp_path / "x")
    assert not (tmp_path / "x").exists()
