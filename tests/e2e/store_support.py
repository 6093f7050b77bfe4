# SPDX-License-Identifier: Apache-2.0
"""`segue store` under test, as a process with a token."""

import contextlib
import json
import os
import signal
import subprocess
import time

from e2e_support import copy_of, same_files, version_directory
from live_support import serving
from live_segment import read_checkpoint
from watch_support import FAST, watching

TOKEN = "e2e-token"


@contextlib.contextmanager
def serving_store(segue, directory, *arguments, token=TOKEN):
    """Gives its URL; ends with the process gone."""
    environment = {**os.environ, "SEGUE_STORE_TOKEN": token}
    if not token:
        environment.pop("SEGUE_STORE_TOKEN")
    process = subprocess.Popen(segue.command("store", "--dir", directory, "--json", *arguments),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


@contextlib.contextmanager
def token_set(token=TOKEN):
    """The token of this process's children."""
    before = os.environ.get("SEGUE_STORE_TOKEN")
    os.environ["SEGUE_STORE_TOKEN"] = token
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("SEGUE_STORE_TOKEN")
        else:
            os.environ["SEGUE_STORE_TOKEN"] = before


def whole_story(segue, store, tmp_path, name):
    """Publish, apply, verify, serve, checkpoint and prune on one store, whatever its transport."""
    for version in range(1, 4):
        report = segue("publish", "--store", store,
                       "--base", version_directory("bf16", version - 1),
                       "--target", version_directory("bf16", version),
                       *(("--anchor", "base") if version == 1 else ()))
        assert report["committed"] and report["target_version"] == version
    again = segue("publish", "--store", store, "--base", version_directory("bf16", 2),
                  "--target", version_directory("bf16", 3))
    assert again["already_published"]

    copy = copy_of(version_directory("bf16", 0), tmp_path / "copy")
    segue("apply", "--store", store, "--checkpoint", copy)
    assert same_files(copy, version_directory("bf16", 3))
    assert segue("verify", "--store", store, "--checkpoint", copy)["version"] == 3
    segue("apply", "--store", store, "--checkpoint", version_directory("bf16", 1),
          "--output", tmp_path / "output", "--to", 2)
    assert same_files(tmp_path / "output", version_directory("bf16", 2))

    segue("checkpoint", "--store", store, "--output", tmp_path / "v3.segue")
    with serving(segue, name, "--store", store, "--checkpoint", version_directory("bf16", 0),
                 "--follow", 20) as receiver:
        assert receiver.ready["version"] == 3
        report = segue("publish", "--store", store, "--base", version_directory("bf16", 3),
                       "--target", version_directory("bf16", 4), "--retain", 2)
        assert report["pruned"] == [1, 2]
        wait_for_version(receiver, 4)
        assert receiver.segment.tensors() == read_checkpoint(version_directory("bf16", 4))
    # Versions 1 and 2 are gone, and with them the way on from version 1; the anchor has one from 0.
    message = segue.fails("version_mismatch", "apply", "--store", store, "--output",
                          tmp_path / "gone", "--checkpoint", version_directory("bf16", 1))
    assert "version" in message
    shown, = segue("anchors", "--store", store)["anchors"]
    assert (shown["anchor"], shown["version"], shown["target_version"]) == ("base", 0, 4)
    fresh = segue("apply", "--store", store, "--checkpoint", version_directory("bf16", 0),
                  "--output", tmp_path / "fresh")
    assert fresh["path"] == [4] and same_files(tmp_path / "fresh", version_directory("bf16", 4))


def watch_story(segue, store, tmp_path):
    """A watcher that publishes into a store, on any transport, and goes on after a restart."""
    watched = tmp_path / "runs"
    watched.mkdir()
    copy_of(version_directory("bf16", 0), watched / "step-0")
    for version in (1, 2):
        with watching(segue, watched, "--store", store, *FAST) as watch:
            copy_of(version_directory("bf16", version), watched / f"step-{version}")
            assert watch.version()["target_version"] == version
            assert watch.stop()[0] == 0
    late = tmp_path / "late"
    segue("apply", "--store", store, "--checkpoint", version_directory("bf16", 0), "--output", late)
    assert same_files(late, version_directory("bf16", 2))


def wait_for_version(receiver, version, seconds=30):
    deadline = time.monotonic() + seconds
    while receiver.version() != version:
        assert time.monotonic() < deadline, receiver.request("/healthz")
        time.sleep(0.02)
