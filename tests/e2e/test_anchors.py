# SPDX-License-Identifier: Apache-2.0
"""Anchors on the command line: set by a publish, kept by those that follow, used by checkpoints and
by serving engines, moved and removed."""

import pathlib
import subprocess
import sys

import e2e_support as support
from live_support import serving

REFERENCE = pathlib.Path(__file__).resolve().parents[1] / "reference" / "apply_delta.py"


def publish(segue, store, version, *options):
    return segue("publish", "--store", store, "--base",
                 support.version_directory("bf16", version - 1), "--target",
                 support.version_directory("bf16", version), *options)


def published(segue, tmp_path):
    """A store with versions 1 to 8 of which one stays, and anchors at 0 and 3."""
    store = tmp_path / "store"
    publish(segue, store, 1, "--anchor", "base")
    for version in range(2, 9):
        options = ("--anchor", "eval=3") if version == 3 else ()
        publish(segue, store, version, "--retain", 1, *options)
    return store


def test_checkpoints_come_from_anchors(segue, tmp_path):
    store = published(segue, tmp_path)
    shown = segue("anchors", "--store", store)["anchors"]
    assert [(a["anchor"], a["version"], a["target_version"]) for a in shown] \
        == [("base", 0, 8), ("eval", 3, 8)]
    target = support.version_directory("bf16", 8)
    for start in (0, 3):
        engine = support.copy_of(support.version_directory("bf16", start), tmp_path / str(start))
        report = segue("apply", "--store", store, "--checkpoint", engine)
        assert report["path"] == [8]
        assert report["payload_bytes"] == shown[0 if start == 0 else 1]["payload_bytes"]
        assert support.same_files(engine, target)
    before = support.files_of(support.version_directory("bf16", 5))
    stranded = support.copy_of(support.version_directory("bf16", 5), tmp_path / "5")
    segue.fails("version_mismatch", "apply", "--store", store, "--checkpoint", stranded)
    assert support.files_of(stranded) == before
    lineage, = segue("inspect", store)["lineages"]
    assert [anchor["anchor"] for anchor in lineage["anchors"]] == ["base", "eval"]
    file = tmp_path / "v8.segue"
    assert segue("checkpoint", "--store", store, "--output", file)["steps"] == 1


def test_reference_reads_an_anchor(segue, tmp_path):
    store = published(segue, tmp_path)
    lineage = store / "default"
    record = max((lineage / "anchors" / "base").glob("*.json"))
    payload, = record.with_suffix("").iterdir()
    plan, = (lineage / "plans").iterdir()
    done = subprocess.run([sys.executable, str(REFERENCE), "--plan", plan, "--base",
                           support.version_directory("bf16", 0), "--manifest", record, "--output",
                           tmp_path / "out", "--payload", payload],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    target = support.version_directory("bf16", 8)
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes() == (target / path.name).read_bytes()


def test_fresh_engine_takes_one_step(segue, tmp_path):
    store = published(segue, tmp_path)
    with serving(segue, "anchors-a", "--store", store, "--checkpoint",
                 support.version_directory("bf16", 0)) as engine:
        assert engine.version() == 8
        publish_next = segue("publish", "--store", store, "--base",
                             support.version_directory("bf16", 8), "--target",
                             support.version_directory("bf16", 7))
        assert publish_next["target_version"] == 9
        assert [anchor["target_version"] for anchor in publish_next["anchors"]] == [9, 9]
        assert engine.post("/update_weights_from_gpu_delta")[0] == 200
        assert engine.post("/rebuild")[0] == 200
        assert engine.version() == 9


def test_moved_and_removed(segue, tmp_path):
    store = tmp_path / "store"
    for version in (1, 2, 3):
        publish(segue, store, version)
    segue("anchors", "--store", store, "--set", "eval=1")
    shown = segue("anchors", "--store", store, "--set", "eval=2", "--set", "base")["anchors"]
    assert [(a["anchor"], a["version"]) for a in shown] == [("base", 0), ("eval", 2)]
    text = segue.text("anchors", "--store", store)
    row = next(line for line in text.splitlines() if "eval" in line)
    assert row.split()[:3] == ["eval", "2", "3"]
    assert segue("anchors", "--store", store, "--remove", "eval", "--remove", "base") \
        == {"anchors": []}
    assert segue.text("anchors", "--store", store) == "no anchors\n"
    segue.fails("not_found", "anchors", "--store", store, "--remove", "eval")
    segue.fails("not_found", "anchors", "--store", store, "--set", "eval=9")
    segue.fails("invalid_argument", "anchors", "--store", store, "--set", "eval")
    segue.fails("invalid_argument", "anchors", "--store", store, "--set", "eval=x")
