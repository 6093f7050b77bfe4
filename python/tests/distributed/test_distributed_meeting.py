# SPDX-License-Identifier: Apache-2.0
"""Meetings: everybody hears the same verdict, and who is missing is named."""

import time

import pytest

pytest.importorskip("torch", reason="torch is not installed")
from torch import distributed as dist

import segue
from ranks_support import in_threads
from segue.distributed import meeting
from segue.distributed.meeting import Meetings


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(meeting, "GRACE_SECONDS", 0.5)


def meetings(count, timeout=0.5, ranks=None):
    store = dist.HashStore()
    return [Meetings(store, rank, ranks or range(count), timeout) for rank in range(count)]


def test_all_hear_the_same(monkeypatch):
    monkeypatch.setattr(meeting, "PIECE_BYTES", 7)
    members = meetings(4, timeout=20)

    def work(rank):
        answers = []
        for _ in range(6):
            members[rank].next_attempt("a")
            answers.append(members[rank].meet(
                "m", {"value": f"{rank}" * 50}, lambda records: [r["value"] for r in records]))
        return answers

    assert in_threads(4, work) == [[[f"{rank}" * 50 for rank in range(4)]] * 6] * 4
    # What no one looks at any more is removed.
    assert members[0].store.num_keys() < 4 * 5 * 10


def test_a_failure_is_everybody_s():
    members = meetings(3, timeout=20)

    def work(rank):
        members[rank].next_attempt("a")
        members[rank].meet("m", {"failure": ("not_found", "no file") if rank == 1 else None}, len)

    for error in in_threads(3, work):
        assert isinstance(error, segue.NotFoundError) and str(error) == "rank 1: no file"

    def decide(_):
        raise segue.InvalidArgumentError("they differ")

    def again(rank):
        members[rank].next_attempt("a")
        members[rank].meet("m", {}, decide)

    for error in in_threads(3, again):
        assert isinstance(error, segue.InvalidArgumentError) and str(error) == "they differ"


@pytest.mark.parametrize("gone", [[2], [1, 3], [0]])
def test_who_is_missing_is_named(gone):
    members = meetings(4, ranks=[10, 11, 12, 13])

    def work(rank):
        members[rank].next_attempt("a")
        if rank not in gone:
            members[rank].meet("m", {}, len)

    for rank, error in enumerate(in_threads(4, work)):
        if rank not in gone:
            assert isinstance(error, segue.UnavailableError)
            names = ", ".join(str(10 + number) for number in gone)
            assert f"rank{'s' if len(gone) > 1 else ''} {names} did not come" in str(error)


def test_one_failure_shortens_the_wait():
    members = meetings(3, timeout=60)

    def work(rank):
        members[rank].next_attempt("a")
        if rank != 2:
            members[rank].meet("m", {"failure": ("unavailable", "lost rank 2") if rank else None},
                               len)

    began = time.monotonic()
    errors = in_threads(3, work)
    assert time.monotonic() - began < 20
    assert "rank 2 did not come" in str(errors[0]) and "lost rank 2" in str(errors[1])


@pytest.mark.parametrize("late", [0, 1])
def test_who_was_not_there_joins_the_next_attempt(late):
    members = meetings(3)

    def first(rank):
        if rank != late:
            members[rank].next_attempt("a")
            members[rank].meet("m", {}, len)

    assert all(isinstance(error, segue.UnavailableError)
               for rank, error in enumerate(in_threads(3, first)) if rank != late)

    def second(rank):
        members[rank].next_attempt("b")
        return members[rank].meet("m", {}, len)

    assert in_threads(3, second) == [3, 3, 3]


@pytest.mark.parametrize("late", [0, 1])
def test_who_comes_too_late_hears_so_at_once(late):
    members = meetings(2)
    members[1 - late].next_attempt("version 7")
    with pytest.raises(segue.UnavailableError):
        members[1 - late].meet("m", {}, len)
    with pytest.raises(segue.UnavailableError, match=f"given up on version 7.*rank {late}"):
        members[late].next_attempt("version 7")

    def again(rank):
        members[rank].next_attempt("version 7")
        return members[rank].meet("m", {}, len)

    assert in_threads(2, again) == [2, 2]


@pytest.mark.parametrize("rank", [0, 1])
def test_who_cannot_wait_is_excused(rank):
    members = meetings(2, timeout=20)
    for member in members:
        member.next_attempt("a")

    def work(number):
        if number == rank:
            members[number].excuse("m", ("internal", "KeyboardInterrupt"))
        else:
            members[number].meet("m", {}, len)

    error = in_threads(2, work)[1 - rank]
    assert isinstance(error, segue.InternalError) and f"rank {rank}: Keyb" in str(error)


def test_a_store_that_is_gone():
    class Gone:
        def check(self, _):
            raise RuntimeError("connection reset")
        set = get = check

    member = Meetings(Gone(), 0, [0], 1)
    with pytest.raises(segue.UnavailableError, match="does not answer"):
        member.next_attempt("a")
