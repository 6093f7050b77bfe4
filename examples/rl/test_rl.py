# SPDX-License-Identifier: Apache-2.0
"""The short form of the loop: a few steps of a tiny model, both runs, everything but the learning,
which takes longer than a test may."""

import json
import pathlib
import subprocess
import sys

RUN = pathlib.Path(__file__).with_name("run.py")
STEPS = 6


def test_weights_are_equal_versions_move_and_a_report_is_written(tmp_path):
    done = subprocess.run(
        [sys.executable, RUN, "--steps", str(STEPS), "--pretrain", "10", "--hidden", "64",
         "--batches", "1", "--output", tmp_path],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "verified"
    runs = json.loads((tmp_path / "log.json").read_text())
    for mode, told in runs.items():
        assert told["equal"], mode
        assert [step["step"] for step in told["steps"]] == list(range(1, STEPS + 1)), mode
        assert told["sampler"][-1]["version"] == STEPS, mode
        assert len({batch["version"] for batch in told["sampler"]}) > 2, mode
        for step in told["steps"]:
            assert step["tokens_lost"] >= 0 and step["pause_s"] >= 0, (mode, step)
    # The rest of what is logged is that of a delta, and of all weights.
    assert all(0 < step["density"] < 1 for step in runs["segue"]["steps"])
    full = runs["broadcast"]["steps"][0]["payload_bytes"]
    assert all(0 < step["payload_bytes"] < full for step in runs["segue"]["steps"])
    updates = runs["segue"]["receiver"]
    assert updates[-1]["version"] == STEPS and all(update["pause_s"] > 0 for update in updates)
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_a_process_that_fails_ends_the_run(tmp_path):
    done = subprocess.run(
        [sys.executable, RUN, "--steps", "2", "--pretrain", "0", "--hidden", "64",
         "--learning-rate", "-1", "--output", tmp_path],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode != 0
    assert "the trainer ended with 1" in done.stdout
    assert "verified" not in done.stdout.splitlines()
