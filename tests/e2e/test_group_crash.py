# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a receiver of two lineages inside its updates. Case D1: whoever enters both gates
reads versions of one update, before the next receiver has come and after. Kills before each word
of the records: src/live/receiver_group_segment_test.cc."""

import http.client
import os
import random
import threading
import time

import pytest

from group_support import Lineages, serving_both

NAME = f"group-crash-{os.getpid()}"
KILLS = int(os.environ.get("SEGUE_TEST_GROUP_KILLS", "40"))


@pytest.fixture(scope="module")
def lineages(segue, tmp_path_factory):
    """Version 1 changes a tenth of 24 MiB each, which takes a while to apply."""
    made = Lineages(segue, tmp_path_factory.mktemp("group-crash"),
                    {"policy": "24MiB", "draft": "24MiB"}, steps=1)
    for name in ("policy", "draft"):
        made.publish(name, 1)
    return made


def ask_for_update(receiver):
    try:
        receiver.post("/update_weights_from_gpu_delta", target_version=1)
    except (OSError, http.client.HTTPException):
        pass  # It was killed.


def kill_inside_update(receiver, delay):
    """The phases of both, as they were left. Waits for the gates by looking into the segment."""
    update = threading.Thread(target=ask_for_update, args=(receiver,))
    update.start()
    deadline = time.monotonic() + 30
    while receiver.segment.phase() == "serving" and receiver.segment.version() == 0:
        assert time.monotonic() < deadline
    time.sleep(delay)
    receiver.kill()
    update.join()
    return receiver.segment.phase(), receiver.draft.phase()


def test_killed_inside_updates(segue, lineages):
    expected = {name: {version: lineages.bytes_of(name, version) for version in (0, 1)}
                for name in ("policy", "draft")}
    dice = random.Random(7)
    met = {}
    with serving_both(segue, NAME, lineages, "--threads", 2) as receiver:
        for _ in range(KILLS):
            assert receiver.post("/rebuild", target_version=0)[0] == 200
            phases = kill_inside_update(receiver, dice.uniform(0, 0.02))
            met[phases] = met.get(phases, 0) + 1
            if phases != ("serving", "serving"):
                assert receiver.segment.gate_is_closed() and receiver.draft.gate_is_closed(), \
                    "an engine could read a mix"
            elif not receiver.segment.gate_is_closed() and not receiver.draft.gate_is_closed():
                assert receiver.segment.version() == receiver.draft.version()
            receiver.start()
            assert receiver.segment.tensors() == expected["policy"][1]
            assert receiver.draft.tensors() == expected["draft"][1]
            assert receiver.request("/healthz")[1]["ready"]
    print(f"of {KILLS} kills met: {met}")
    inside = sum(count for phases, count in met.items() if phases != ("serving", "serving"))
    assert inside >= KILLS // 10, met
