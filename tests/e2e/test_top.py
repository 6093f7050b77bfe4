# SPDX-License-Identifier: Apache-2.0
"""`segue top` beside real engines, dead ones and ones that accept and say nothing."""

import json
import signal
import socket
import subprocess
import time

import e2e_support as support
from live_support import serving


def publish(segue, store, version):
    segue("publish", "--store", store, "--base", support.version_directory("bf16", version - 1),
          "--target", support.version_directory("bf16", version))


def test_engines_lag_and_pause(segue, tmp_path):
    store = tmp_path / "store"
    publish(segue, store, 1)
    base = support.version_directory("bf16", 0)
    with serving(segue, "top-a", "--store", store, "--checkpoint", base) as engine, \
            socket.create_server(("127.0.0.1", 0)) as silent:
        for version in (2, 3):
            publish(segue, store, version)
        mute = f"http://127.0.0.1:{silent.getsockname()[1]}"
        dead = "http://127.0.0.1:1"
        begin = time.monotonic()
        view = segue("top", "--once", "--store", store, "--engine", engine.url, "--engine", dead,
                     "--engine", mute)
        assert time.monotonic() - begin < 30
        lineage, = view["lineages"]
        assert (lineage["lineage"], lineage["newest"]) == ("default", 3)
        held, gone, quiet = view["engines"]
        assert held["reachable"] and held["ready"] and held["engine_id"] == "top-a"
        assert (held["version"], held["lag"]) == (1, 2)
        assert not gone["reachable"] and gone["message"]
        assert not quiet["reachable"] and quiet["lag"] is None
        assert engine.post("/update_weights_from_gpu_delta")[0] == 200
        text = segue.text("top", "--once", "--store", store, "--engine", engine.url, "--engine",
                          dead)
        row = next(line for line in text.splitlines() if line.strip().startswith("top-a"))
        assert "RESUMED" in row and row.split()[3:5] == ["3", "0"]
        assert "unreachable" in text


def test_another_run_of_the_same_name(segue, tmp_path):
    """Name and number agree, the weights do not: no lag of 0, and no acknowledgement."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    publish(segue, theirs, 1)
    step = ("--store", ours, "--base", support.version_directory("bf16", 1), "--target",
            support.version_directory("bf16", 2))
    segue("publish", *step)
    with serving(segue, "top-o", "--store", theirs, "--checkpoint",
                 support.version_directory("bf16", 0)) as engine:
        held, = segue("top", "--once", "--store", ours, "--engine", engine.url)["engines"]
        assert (held["lineage"], held["version"]) == ("default", 1)
        assert held["other"] and held["lag"] is None
        text = segue.text("top", "--once", "--store", ours, "--engine", engine.url)
        row = next(line for line in text.splitlines() if line.strip().startswith("top-o"))
        assert row.split()[-2:] == ["1", "other"]
        held, = segue("top", "--once", "--store", theirs, "--engine", engine.url)["engines"]
        assert not held["other"] and held["lag"] == 0
        done = subprocess.run(segue.command("publish", *step, "--wait-for", engine.url,
                                            "--wait-timeout", "0"),
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == support.EXIT_CODES["unavailable"]
        assert "another run's" in done.stderr and held["digest"] in done.stderr


def test_token(segue, tmp_path):
    store = tmp_path / "store"
    publish(segue, store, 1)
    token = tmp_path / "token"
    token.write_text("secret\n")
    with serving(segue, "top-t", "--store", store, "--checkpoint",
                 support.version_directory("bf16", 0),
                 environment={"SEGUE_TOKEN": "secret"}) as engine:
        view = segue("top", "--once", "--engine", engine.url)
        assert "token" in view["engines"][0]["message"]
        view = segue("top", "--once", "--engine", engine.url, "--token-file", token)
        assert view["engines"][0]["version"] == 1
        assert view["engines"][0]["lag"] is None  # No store was named.


def test_live_view_ends_cleanly(segue, tmp_path):
    store = tmp_path / "store"
    publish(segue, store, 1)
    top = segue.start("top", "--store", store, "--interval", "50", "--json")
    try:
        first = json.loads(top.stdout.readline())
        assert first["lineages"][0]["newest"] == 1
        publish(segue, store, 2)
        while json.loads(top.stdout.readline())["lineages"][0]["newest"] != 2:
            pass
        top.send_signal(signal.SIGINT)
        _, errors = top.communicate(timeout=30)
        assert top.returncode == 0 and errors == ""
    finally:
        if top.poll() is None:
            top.kill()
            top.communicate()


def test_refusals(segue, tmp_path):
    segue.fails("invalid_argument", "top", "--once")
    segue.fails("invalid_argument", "top", "--once", "--engine", "localhost:7000")
    segue.fails("invalid_argument", "top", "--once", "--engine", "http://a", "--token-file",
                tmp_path / "nothing")
    done = subprocess.run(segue.command("top", "--once", "--store", tmp_path / "none"),
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == support.EXIT_CODES["unavailable"]
    # What no later look can find either.
    segue.fails("unsupported", "top", "--store", "gopher://x")
    segue.fails("invalid_argument", "top", "--store", "s3://bucket/run")
