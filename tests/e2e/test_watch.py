# SPDX-License-Identifier: Apache-2.0
"""`segue publish --watch` beside a trainer that saves into a directory: versions as they come, a
clean end, a restart that goes on, and failures that are one line each."""

import os
import shutil
import threading

import e2e_support as support
from watch_support import FAST, watching


def save(directory, version, name):
    """As a trainer that writes in place: file by file, under the final name."""
    target = directory / name
    target.mkdir()
    for path in sorted(support.version_directory("bf16", version).iterdir()):
        shutil.copyfile(path, target / path.name)
    return target


def test_versions_as_they_come_and_restart(segue, tmp_path):
    watched, store = tmp_path / "runs", tmp_path / "store"
    watched.mkdir()
    save(watched, 0, "step-000000")
    with watching(segue, watched, "--store", store, *FAST) as watch:
        for version in (1, 2):
            save(watched, version, f"step-{version * 10:06}")
            report = watch.version()
            assert report["checkpoint"] == f"step-{version * 10:06}"
            assert report["target_version"] == version
        code, errors = watch.stop()
        assert code == 0 and errors == ""
    save(watched, 3, "step-000030")
    with watching(segue, watched, "--store", store, *FAST) as watch:
        assert watch.version()["target_version"] == 3
        assert watch.stop()[0] == 0
    engine = support.copy_of(support.version_directory("bf16", 0), tmp_path / "engine")
    segue("apply", "--store", store, "--checkpoint", engine)
    assert support.same_files(engine, support.version_directory("bf16", 3))


def test_half_written_is_not_published(segue, tmp_path):
    watched, store = tmp_path / "runs", tmp_path / "store"
    watched.mkdir()
    for version in (0, 1):
        save(watched, version, f"step-{version}")
    with watching(segue, watched, "--store", store, *FAST) as watch:
        assert watch.version()["target_version"] == 1
        source = support.version_directory("bf16", 2)
        target = watched / "step-2"
        target.mkdir()
        # Index first, then one shard, then the other in two pieces with rests in between.
        names = sorted((path.name for path in source.iterdir()), reverse=True)
        for name in names[:-1]:
            shutil.copyfile(source / name, target / name)
        content = (source / names[-1]).read_bytes()
        with open(target / names[-1], "wb") as file:
            for piece in (content[:len(content) // 2], content[len(content) // 2:]):
                threading.Event().wait(0.5)
                versions = os.listdir(store / "default" / "versions")
                assert versions == ["0000000001.json"]
                file.write(piece)
                file.flush()
        assert watch.version()["target_version"] == 2
        assert watch.stop()[0] == 0


def test_failures_are_one_line_each(segue, tmp_path):
    watched, store = tmp_path / "runs", tmp_path / "store"
    watched.mkdir()
    for version in (0, 1):
        save(watched, version, f"step-{version}")
    with watching(segue, watched, "--store", store, *FAST) as watch:
        assert watch.version()["target_version"] == 1
        shutil.rmtree(watched / "step-1")  # The base of the next.
        save(watched, 2, "step-2")
        line = watch.process.stderr.readline()
        assert line.startswith("segue publish: ") and "step-1" in line and "(not_found)" in line
        save(watched, 1, "step-1")
        assert watch.version()["target_version"] == 2
        assert watch.stop()[0] == 0


def test_refusals(segue, tmp_path):
    store = tmp_path / "store"
    assert "--watch" in segue.fails("invalid_argument", "publish", "--store", store, "--base", "a")
    message = segue.fails("invalid_argument", "publish", "--store", store, "--watch", tmp_path,
                          "--base", "a")
    assert "--base" in message
    segue.fails("not_found", "publish", "--store", store, "--watch", tmp_path / "nowhere")
