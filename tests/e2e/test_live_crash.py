# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a serving receiver inside its applies. Case D1: afterwards the live weights are
exactly the base or exactly the target, and no engine ever reads a mix."""

import http.client
import os
import random
import threading
import time

import pytest

from live_support import serving

from live_segment import read_checkpoint

NAME = f"crash-{os.getpid()}"
KILLS = int(os.environ.get("SEGUE_TEST_KILLS", "100"))


@pytest.fixture(scope="module")
def runs(segue, tmp_path_factory):
    """A store whose version 1 changes a tenth of 48 MiB, which takes a while to apply."""
    folder = tmp_path_factory.mktemp("live-crash")
    segue("generate", "--output", folder / "runs", "--preset", "bf16-10", "--size", "48MiB")
    base, target = folder / "runs/v0000000000", folder / "runs/v0000000001"
    segue("publish", "--store", folder / "store", "--base", base, "--target", target)
    return folder / "store", base, target


def kill_inside_apply(receiver, delay):
    """Whether the kill met the apply. Waits for its beginning by looking into the segment."""
    update = threading.Thread(target=ask_for_update, args=(receiver,))
    update.start()
    deadline = time.monotonic() + 30
    while receiver.segment.phase() != "applying" and receiver.segment.version() == 0:
        assert time.monotonic() < deadline
    time.sleep(delay)
    receiver.kill()
    update.join()
    return receiver.segment.phase() == "applying"


def ask_for_update(receiver):
    try:
        receiver.post("/update_weights_from_gpu_delta", target_version=1)
    except (OSError, http.client.HTTPException):
        pass  # It was killed.


def test_killed_inside_applies(segue, runs):
    store, base, target = runs
    expected = {0: read_checkpoint(base), 1: read_checkpoint(target)}
    inside = 0
    dice = random.Random(7)
    with serving(segue, NAME, "--store", store, "--checkpoint", base, "--threads", 2) as receiver:
        for _ in range(KILLS):
            assert receiver.post("/rebuild", target_version=0)[0] == 200
            if kill_inside_apply(receiver, dice.uniform(0, 0.012)):
                inside += 1
                assert receiver.segment.gate_is_closed(), "an engine could read a mix"
            else:
                held = receiver.segment.version()
                assert receiver.segment.tensors() == expected[held]
            receiver.start()
            assert receiver.ready["version"] == 1
            assert receiver.segment.tensors() == expected[1]
    print(f"{inside} of {KILLS} kills met an apply")
    assert inside >= KILLS // 10, f"only {inside} of {KILLS} kills met an apply"
