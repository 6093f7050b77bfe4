# SPDX-License-Identifier: Apache-2.0
"""Faults of a distributed publisher: ranks that die, raise, are slow or cannot write give no
version and a clear error on all others (case G7); the next version holds what the lost one had
(case D2). Cases that mostly wait for deadlines run side by side."""

import os
import signal
import threading
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import segue
from ranks_support import (cut, die, engine_reaches, error_of, full_model, in_threads,
                           open_publisher, run_ranks, versions)
from segue.distributed import exchange, meeting
from segue.distributed.publisher import Publisher


def rows(rank, count, step):
    """Each tensor's rows on all ranks, so that every version moves partitions."""
    return {name: segue.distributed.Partition(*_row(tensor, rank, count))
            if tensor.dim() else tensor for name, tensor in full_model(step).items()}


def _row(tensor, rank, count):
    part, offset = cut(tensor, 0, count)[rank]
    return part, tuple(tensor.shape), offset


def side_by_side(check, cases):
    """check(case) of each in a thread of its own."""
    cases = list(cases)
    errors = in_threads(len(cases), lambda number: check(cases[number]))
    assert errors == [None] * len(cases), errors


def patient(seconds):
    """How long the others are waited for once one has failed, in this process."""
    meeting.GRACE_SECONDS = seconds


def before(publisher, name, call):
    """Has `call` called before a method of the publisher's."""
    wrapped = getattr(publisher, name)

    def instead(*arguments, **options):
        call()
        return wrapped(*arguments, **options)

    setattr(publisher, name, instead)


# --- Ranks that die -------------------------------------------------------------------------------

# Where a rank dies: the method before which, and what the others' errors say.
DEATHS = {"publish": "did not come to 'begin'", "_gather": "did not come to 'compared'",
          "_commit": "did not come to 'uploaded'", "commit": "version 2: owner "}


def one_dies(rank, store, dead, place):
    """Rank `dead` dies in the second version. What the others' publish says, how long it took, and
    at which version the baselines are."""
    patient(0.5)
    publisher = open_publisher(store, rows(rank, 3, 0), timeout=5.0)
    publisher.publish(1, rows(rank, 3, 1))
    publisher._meetings.timeout = 2.0
    if rank == dead:
        before(publisher if hasattr(Publisher, place) else publisher._core, place, die)
    began = time.monotonic()
    first = error_of(publisher.publish, 2, rows(rank, 3, 2))
    took = time.monotonic() - began
    return first, took, publisher.version


@pytest.mark.parametrize("dead", [0, 1])
def test_a_rank_that_dies_gives_no_version(tmp_path, dead):
    side_by_side(lambda place: check_death(str(tmp_path / place), dead, place), DEATHS)


def check_death(store, dead, place):
    answers = run_ranks(3, one_dies, store, dead, place)
    assert answers[dead] is None
    for rank, answer in enumerate(answers):
        if rank != dead:
            text, took, version = answer
            assert text.startswith("UnavailableError: ") and DEATHS[place] in text, text
            assert f"rank {dead}" in text, text
            assert took < 12 and version == 1
    assert versions(store) == [1]
    if dead == 1:
        # The job starts again from the last version, as its trainer's checkpoint has it.
        run_ranks(2, starts_again, store)
        assert versions(store) == [1, 2] and engine_reaches(store, 2, 0)


def starts_again(rank, store):
    """With another number of ranks, from the tensors of version 1."""
    publisher = open_publisher(store, rows(rank, 2, 1))
    report = publisher.publish(2, rows(rank, 2, 2))
    assert (report.base_version, publisher.version) == (1, 2)


def new_group(rank, store):
    """Rank 2 dies; the others go on by themselves, in a group of their own, from files."""
    from torch import distributed as dist
    patient(1.0)
    everyone = open_publisher(store, rows(rank, 3, 0), timeout=3.0)
    if rank == 2:
        everyone.publish(1, rows(rank, 3, 1))
        die()
    everyone.publish(1, rows(rank, 3, 1))
    lost = error_of(everyone.publish, 2, rows(rank, 3, 2))
    everyone.close()
    group = dist.new_group([0, 1], backend="gloo", use_local_synchronization=True)
    publisher = open_publisher(store, rows(rank, 2, 1), group=group)
    publisher.publish(2, rows(rank, 2, 3))
    publisher.close()
    return lost


def test_survivors_go_on_in_a_new_group(tmp_path):
    store = str(tmp_path / "store")
    answers = run_ranks(3, new_group, store)
    assert answers[2] is None and all("rank 2" in text for text in answers[:2])
    assert versions(store) == [1, 2]


def base_from_files(rank, checkpoint, store):
    """The base is in a checkpoint; the trainer's tensors have gone on already."""
    publisher = open_publisher(store, rows(rank, 2, 1), base=checkpoint)
    report = publisher.publish(1)
    return report.base_version, report.changed_elements, publisher.owned


def test_base_from_files(tmp_path):
    from shard_file import write
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    write(checkpoint / "model.safetensors", full_model(0))
    store = str(tmp_path / "store")
    answers = run_ranks(2, base_from_files, str(checkpoint), store)
    assert answers[0][0] == 0 and answers[0][1] > 0
    assert engine_reaches(store, 1)


# --- Ranks that are there, and fail ---------------------------------------------------------------


def one_raises(rank, store, place):
    """Rank 1 fails in version 1 at `place`; then all publish version 2, which holds the changes of
    both, over connections that may be new."""
    patient(1.0)
    publisher = open_publisher(store, rows(rank, 3, 0), timeout=4.0)
    error = {"put": segue.ResourceExhaustedError("no memory"), "_gather": MemoryError("none"),
             "upload": segue.UnavailableError("disk on fire"),
             "commit": segue.UnavailableError("disk on fire")}[place]
    broken = publisher if place == "_gather" else publisher._core
    kept = getattr(broken, place)

    def fail(*_):
        raise error

    if rank == 1:
        setattr(broken, place, fail)
    first = error_of(publisher.publish, 1, rows(rank, 3, 1))
    setattr(broken, place, kept)
    if rank == 1 and place == "commit":
        publisher._core.discard()
    report = publisher.publish(2, rows(rank, 3, 2))
    return first, report.base_version, report.target_version


RAISED = {"put": "ResourceExhaustedError: rank 1: no memory", "_gather": "MemoryError: none",
          "upload": "UnavailableError: rank 1: disk on fire",
          "commit": "UnavailableError: version 1: "}


def test_a_rank_that_raises_fails_all(tmp_path):
    side_by_side(lambda place: check_raising(str(tmp_path / place), place), RAISED)


def check_raising(store, place):
    answers = run_ranks(3, one_raises, store, place)
    for text, base, target in answers:
        assert RAISED[place] in text, text
        assert (base, target) == (0, 2)
    assert "owner 1 of 3 (rank 1)" in answers[0][0] or place != "commit"
    assert versions(store) == [2] and engine_reaches(store, 2)


def bytes_change(rank, store):
    """A bit flips between the ranks, in one tensor; then all is well again."""
    patient(0.5)
    publisher = open_publisher(store, rows(rank, 2, 0))
    if rank == 1:
        begin = exchange.Links._begin

        def flip(links, what, data, to, tag):
            if what == "send" and tag == exchange.DATA:
                data = data.clone()
                data[-1] ^= 4
            return begin(links, what, data, to, tag)

        exchange.Links._begin = flip
    text = error_of(publisher.publish, 1, rows(rank, 2, 1))
    if rank == 1:
        exchange.Links._begin = begin
    publisher.publish(2, rows(rank, 2, 2))
    return text


def test_bytes_that_change_on_the_way_are_refused(tmp_path):
    store = str(tmp_path / "store")
    for text in run_ranks(2, bytes_change, store):
        assert text.startswith("CorruptionError: ") and "rank 0: tensor '" in text, text
        assert "are not those that were sent" in text, text
    assert versions(store) == [2] and engine_reaches(store, 2)


def one_is_slow(rank, store):
    """Rank 1 comes a second late, which is in time, and then too late, which it hears at once."""
    patient(0.5)
    publisher = open_publisher(store, rows(rank, 2, 0), timeout=3.0)
    time.sleep(rank / 2)
    publisher.publish(1, rows(rank, 2, 1))
    torch.distributed.barrier()
    time.sleep(3.5 * rank)
    text = error_of(publisher.publish, 2, rows(rank, 2, 2))
    report = publisher.publish(3, rows(rank, 2, 3))
    return text, report.base_version


def test_a_rank_that_is_slow_is_waited_for_and_then_named(tmp_path):
    store = str(tmp_path / "store")
    answers = run_ranks(2, one_is_slow, store)
    assert answers[0][0] == "UnavailableError: rank 1 did not come to 'begin'"
    assert "given up on version 2: this one (rank 1) came too late" in answers[1][0]
    assert [base for _, base in answers] == [1, 1]
    assert versions(store) == [1, 3] and engine_reaches(store, 3)


def uploads_fail(rank, store, folder):
    """The store takes nothing for a while; then one version holds all changes (case D2)."""
    publisher = open_publisher(store, rows(rank, 2, 0), timeout=2.0)
    publisher.publish(1, rows(rank, 2, 1))
    held = publisher.baseline_bytes
    torch.distributed.barrier()  # The other rank has seen version 1 too.
    if rank == 0:
        os.rename(folder, folder + ".away")
        with open(folder, "w", encoding="utf-8"):
            pass
    text = error_of(publisher.publish, 2, rows(rank, 2, 2))
    if rank == 0:
        os.remove(folder)
        os.rename(folder + ".away", folder)
    torch.distributed.barrier()
    report = publisher.publish(3, rows(rank, 2, 3))
    return text, report.base_version, publisher.baseline_bytes == held


def test_an_upload_that_fails_costs_its_version_alone(tmp_path):
    store = str(tmp_path / "store")
    answers = run_ranks(2, uploads_fail, store, store + "/default")
    for text, base, same in answers:
        assert text and base == 1 and same
    assert versions(store) == [1, 3] and engine_reaches(store, 3, 1)


def one_is_interrupted(rank, store, who, place):
    """Ctrl-C on one rank: it is raised there, and the other hears of it."""
    publisher = open_publisher(store, rows(rank, 2, 0))
    at = publisher if place == "_put_own" else publisher._meetings
    kept = getattr(at, place)
    if rank == who:
        # Below a background job the signal is ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        before(at, place, lambda: signal.raise_signal(signal.SIGINT))
        try:
            publisher.publish(1, rows(rank, 2, 1))
        except KeyboardInterrupt:
            text = "interrupted"
        setattr(at, place, kept)
    else:
        text = error_of(publisher.publish, 1, rows(rank, 2, 1))
    publisher.publish(2, rows(rank, 2, 2))
    return text


@pytest.mark.parametrize("who", [0, 1])
def test_an_interrupt_of_one_rank_fails_all(tmp_path, who):
    """While it compares, or waits for the others (or for the verdict)."""

    def check(place):
        store = str(tmp_path / place)
        texts = run_ranks(2, one_is_interrupted, store, who, place)
        assert texts[who] == "interrupted" and f"rank {who}: Keyb" in texts[1 - who], texts
        assert versions(store) == [2] and engine_reaches(store, 2)

    side_by_side(check, ["_put_own", "_get"])


# --- Writes at the wrong time ---------------------------------------------------------------------


def commits_in_a_thread(rank, store):
    """With `wait` off the tensors may be written to as soon as publish returns; not before."""
    model = full_model(0)
    publisher = open_publisher(store, lambda: model)
    committed = threading.Event()
    commit = publisher._core.commit
    publisher._core.commit = lambda: (committed.wait(20), commit())[1]
    copy_into(model, full_model(1))
    future = publisher.publish(1, wait=False)
    assert not future.done() and not versions(store)
    copy_into(model, full_model(2))
    committed.set()
    report = future.result(20)
    assert (report.target_version, publisher.version) == (1, 1)
    before(publisher, "_put_own", lambda: model["scale"].add_(1))
    torn = error_of(publisher.publish, 2)
    publisher._put_own = Publisher._put_own.__get__(publisher)
    copy_into(model, full_model(3))
    publisher.publish(3, wait=False)
    publisher.close()  # Waits for it.
    return torn


def copy_into(model, other):
    """In place."""
    for name, tensor in model.items():
        if tensor.numel():
            tensor.copy_(other[name]) if tensor.dim() == 0 else \
                tensor.view(torch.uint8).copy_(other[name].view(torch.uint8))


def test_tensors_may_be_written_to_once_compared(tmp_path):
    store = str(tmp_path / "store")
    for text in run_ranks(2, commits_in_a_thread, store):
        assert "tensor 'scale' was written to while it was published" in text
    assert versions(store) == [1, 3]
    assert engine_reaches(store, 1) and engine_reaches(store, 3)


def hook_fails(rank, store):
    """A hook's errors come out of the optimizer's step, or go to the trainer's function."""
    weight = torch.nn.Parameter(torch.arange(600.0))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    publisher = open_publisher(store, {"weight": weight})
    told = []
    handle = publisher.attach(optimizer, step=10, on_error=told.append)
    commit = publisher._core.commit

    def train():
        weight.grad = torch.ones(600)
        optimizer.step()

    def fail():
        publisher._core.discard()
        raise segue.UnavailableError("no store today")

    train()
    publisher._core.commit = fail
    train()
    handle.remove()
    handle = publisher.attach(optimizer, step=12)
    raised = error_of(train)
    publisher._core.commit = commit
    train()
    handle.remove()
    # With a thread: told after the next version is made, or at the end.
    publisher.attach(optimizer, step=14, wait=False)
    publisher._core.commit = fail
    train()
    publisher._committing.exception(20)
    publisher._core.commit = commit
    later = error_of(train)
    publisher._committing.result(20)
    publisher._core.commit = fail
    train()
    return [str(error) for error in told], [raised, later, error_of(publisher.close)], \
        weight[0].item()


def test_what_a_hook_fails_with(tmp_path):
    store = str(tmp_path / "store")
    for told, raised, value in run_ranks(2, hook_fails, store):
        assert len(told) == 1 and "version 12: no store today" in told[0]
        for text, version in zip(raised, (13, 15, 17)):
            assert text.startswith(f"UnavailableError: version {version}: no store today"), raised
        assert value == -7.0
    assert versions(store) == [11, 14, 16]


def keeps_the_store(rank, store):
    """Rank 0 keeps the process group's store, as it does without a launcher, and dies."""
    from torch import distributed as dist
    kept = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 \
        else None
    ports = [kept.port if kept else None]
    dist.broadcast_object_list(ports)
    dist.destroy_process_group()
    dist.init_process_group("gloo", rank=rank, world_size=2, store=kept or dist.TCPStore(
        "127.0.0.1", ports[0], is_master=False))
    publisher = open_publisher(store, rows(rank, 2, 0))
    dist.barrier()
    if rank == 0:
        die()
    return error_of(publisher.publish, 1, rows(rank, 2, 1))


def test_the_store_of_the_group_dies_with_its_rank(tmp_path):
    store = str(tmp_path / "store")
    answers = run_ranks(2, keeps_the_store, store)
    assert answers[1].startswith("UnavailableError: the store of the process group does not answer")
    assert versions(store) == []
