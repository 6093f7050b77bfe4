# SPDX-License-Identifier: Apache-2.0
"""Faults at random, from a seed: whatever versions come of it are the trainer's bytes, and once the
faults are over the next version is there at once.

A longer run: `SEGUE_SEEDS=1,2,3 SEGUE_STEPS=40 pytest python/tests/distributed -k random`.
"""

import os
import random
import signal
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import segue
from ranks_support import engine_reaches, error_of, open_publisher, run_ranks, versions
from test_distributed_faults import patient, rows

RANKS = 3
SEEDS = [int(seed) for seed in os.environ.get("SEGUE_SEEDS", "1").split(",")]
STEPS = int(os.environ.get("SEGUE_STEPS", "5"))
FAULTS = ["none", "put", "_gather", "upload", "commit", "interrupt", "absent", "late", "thread"]


class Faulty:
    """A publisher's rank, and one fault at a time."""

    def __init__(self, publisher):
        self.publisher = publisher
        self._broken = []

    def break_at(self, owner, name, before):
        """Calls `before` in front of a method, which is not called where that raises."""
        wrapped = getattr(owner, name)

        def instead(*arguments, **options):
            before()
            return wrapped(*arguments, **options)

        setattr(owner, name, instead)
        self._broken.append((owner, name))

    def fault(self, kind, place):
        """Prepares it."""
        if kind in ("put", "upload", "commit"):
            self.break_at(self.publisher._core, kind, fail)
        elif kind == "_gather":
            self.break_at(self.publisher, kind, fail)
        elif kind == "interrupt":
            owner = self.publisher if hasattr(self.publisher, place) else self.publisher._meetings
            self.break_at(owner, place, lambda: signal.raise_signal(signal.SIGINT))

    def mend(self):
        """Undoes it."""
        for owner, name in self._broken:
            delattr(owner, name)
        if "commit" in [name for _, name in self._broken]:
            self.publisher._core.discard()
        self._broken.clear()


def fail():
    raise segue.UnavailableError("a fault of the test's")


def with_faults(rank, store, seed):
    """What the last version's publish says, after STEPS with faults."""
    patient(0.3)
    chance = random.Random(seed)
    publisher = open_publisher(store, rows(rank, RANKS, 0), timeout=4.0)
    faulty = Faulty(publisher)
    for step in range(1, STEPS + 1):
        torch.distributed.barrier()  # As training steps keep ranks together.
        kind, who = chance.choice(FAULTS), chance.randrange(RANKS)
        place, delay = chance.choice(["_put_own", "_compare", "_get", "_put"]), chance.random() * 6
        if rank == who:
            if kind == "absent":
                continue
            if kind == "late":
                time.sleep(delay)
            faulty.fault(kind, place)
        try:
            error_of(publish, publisher, step, rows(rank, RANKS, step), kind != "thread")
        except KeyboardInterrupt:
            pass
        faulty.mend()
    torch.distributed.barrier()
    return error_of(publisher.publish, STEPS + 1, rows(rank, RANKS, STEPS + 1))


def publish(publisher, step, tensors, wait):
    made = publisher.publish(step, tensors, wait=wait)
    if not wait:
        made.result()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_faults(tmp_path, seed):
    store = str(tmp_path / "store")
    assert run_ranks(RANKS, with_faults, store, seed) == [""] * RANKS
    made = versions(store)
    assert made[-1] == STEPS + 1
    assert all(engine_reaches(store, version) for version in made)
