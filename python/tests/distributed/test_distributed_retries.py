# SPDX-License-Identifier: Apache-2.0
"""What ranks make of a step that was published before, in this job or in one before it: they all
refuse it, or all know that it is there. And who refuses early, on one rank alone, fails all of them
at once."""

import shutil
import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import segue
from ranks_support import engine_reaches, full_model, open_publisher, run_ranks, versions


def own_tensors(rank):
    return {f"a{rank}": torch.zeros(1000)}


def outcome(call, *arguments, **options):
    """What a call says, for comparison between ranks."""
    try:
        report = call(*arguments, **options)
    except segue.Error as error:
        return type(error).__name__, str(error)
    return (report.already_published, report.target_version, report.base_digest,
            report.target_digest)


def old_numbers(rank, store):
    """Rank 1 has at step 2 what it has at step 5, and its change to both is the same."""
    tensors = own_tensors(rank)
    said = []
    with open_publisher(store, tensors) as publisher:
        for step in range(1, 6):
            tensors[f"a{rank}"].fill_(step if rank == 0 else 2 if step == 2 else 1)
            said.append(outcome(publisher.publish, step))
        if rank == 1:
            tensors["a1"].fill_(2)
        said += [outcome(publisher.publish, 2), publisher.version]
        if rank == 1:
            tensors["a1"].fill_(1)
    # A new job, from the bytes of the last version: nobody has told it the number.
    with open_publisher(store, tensors) as publisher:
        said.append(publisher.version)
        if rank == 1:
            tensors["a1"].fill_(2)
        said += [outcome(publisher.publish, 2), outcome(publisher.publish, 5), publisher.version]
        said += [outcome(publisher.publish, 6), publisher.version]
    return said


def test_an_old_number_is_refused_on_all(tmp_path):
    one, other = run_ranks(2, old_numbers, str(tmp_path))
    assert one == other
    *steps, again, held, opened, old, taken, still, new, last = one
    assert [step[1] for step in steps] == [1, 2, 3, 4, 5]
    assert again[0] == "InvalidArgumentError" and "comes before" in again[1] and held == 5
    assert opened == 5 and old[0] == "InvalidArgumentError" and "comes before" in old[1]
    assert taken[0] == "InvalidArgumentError" and "exists with other content" in taken[1]
    assert still == 5 and new[1] == 6 and last == 6
    assert versions(tmp_path) == [1, 2, 3, 4, 5, 6]


def same_step(rank, store):
    tensors = full_model(0)
    said = []
    with open_publisher(store, tensors) as publisher:
        tensors.update(full_model(1))
        said += [outcome(publisher.publish, 1, tensors), outcome(publisher.publish, 1, tensors)]
        said.append(publisher.version)
    for step in (1, 0):  # From this step's own checkpoint, and from the one before.
        with open_publisher(store, full_model(step)) as publisher:
            said += [outcome(publisher.publish, 1, full_model(1)), publisher.version]
    with open_publisher(store, full_model(1)) as publisher:
        said.append(outcome(publisher.publish, 2, full_model(2)))
    said.append(opened_with(store, full_model(7)))
    return said


def opened_with(store, tensors):
    try:
        open_publisher(store, tensors).close()
    except segue.Error as error:
        return type(error).__name__
    return ""


@pytest.mark.parametrize("count", [1, 2])
def test_the_same_step_again(tmp_path, count):
    answers = run_ranks(count, same_step, str(tmp_path))
    assert all(answer == answers[0] for answer in answers)
    first, again, held, own, own_held, before, before_held, new, strange = answers[0]
    assert not first[0] and again == own == before == (True, *first[1:])
    assert held == own_held == before_held == 1 and new[:2] == (False, 2)
    assert strange == "VersionMismatchError"
    assert versions(tmp_path) == [1, 2] and engine_reaches(str(tmp_path), 2)


def other_stores(rank, store):
    """Rank 1 has an old copy of the store."""
    return outcome_of_opening(store if rank == 0 else store + "-copy")


def outcome_of_opening(store):
    try:
        open_publisher(store, full_model(1)).close()
    except segue.Error as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_ranks_that_have_not_one_store(tmp_path):
    store = str(tmp_path / "store")
    with segue.Publisher(store, base=full_model(1), chunk_size=4096) as publisher:
        publisher.publish(full_model(1), step=1)
        shutil.copytree(store, store + "-copy")
        publisher.publish(full_model(1), step=2)
    for said in run_ranks(2, other_stores, store):
        assert said.startswith("InvalidArgumentError: ") and "versions [2, 1]" in said


def train(rank, store):
    """Two jobs of six steps each, the second from what the first has trained."""
    torch.manual_seed(0)
    module = torch.nn.Linear(8, 8)
    made = []
    for _ in range(2):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        with open_publisher(store, module) as publisher:
            publisher.attach(optimizer, every=2)
            for _ in range(6):
                module(torch.ones(2, 8)).sum().backward()
                optimizer.step()
            made.append(publisher.version)
    return made


@pytest.mark.parametrize("count", [1, 2])
def test_attached_after_a_restart_counts_on(tmp_path, count):
    assert run_ranks(count, train, str(tmp_path)) == [[6, 12]] * count
    assert versions(tmp_path) == [2, 4, 6, 8, 10, 12]


def early(rank, store, where):
    """Rank 1 makes a call that makes no sense; both are back at once."""
    def tensors():
        if rank == 1 and where == "callable" and publisher is not None:
            raise KeyError("layers.7")
        return own_tensors(rank)

    publisher = None
    began = time.monotonic()
    options = {"opening": {"retain": -1}, "owner": {"owner": 3}}.get(where, {}) if rank else {}
    cause = None
    try:
        publisher = open_publisher(store, tensors, timeout=60.0, **options)
        publisher.publish("x" if rank == 1 and where == "step" else 1)
        said = ""
    except segue.Error as error:
        said, cause = f"{type(error).__name__}: {error}", error.__cause__
    took = time.monotonic() - began
    good = publisher is None or publisher.publish(1).target_version == 1 if where != "callable" \
        else True
    return said, repr(cause), took < 8, good


@pytest.mark.parametrize("where, words", [
    ("opening", "retain"), ("owner", "owner: the ranks settle that"), ("step", "step is a whole"),
    ("callable", "the callable that gives the tensors raised KeyError"),
])
def test_who_refuses_early_fails_all_at_once(tmp_path, where, words):
    answers = run_ranks(2, early, str(tmp_path), where)
    for said, _, soon, good in answers:
        assert said.startswith("InvalidArgumentError: ") and words in said and soon and good, said
    if where == "callable":
        assert answers[1][1] == "KeyError('layers.7')" and answers[0][1] == "None"


def written_through_data(rank, store):
    import threading
    weights = {"w": torch.zeros(1 << 21, dtype=torch.int16)}
    stop = threading.Event()

    def write():
        random = torch.Generator().manual_seed(1)
        while not stop.is_set():
            weights["w"].data[torch.randint(0, 1 << 21, (20000,), generator=random)] += 1

    thread = threading.Thread(target=write)
    refused, made = "", 0
    with open_publisher(store, weights, chunk_size=1 << 20) as publisher:
        thread.start()
        while not refused and made < 300:
            said = outcome(publisher.publish, made + 1)
            refused = said[1] if said[0] == "InvalidArgumentError" else ""
            made += not refused
        stop.set()
        thread.join()
        seen = versions(store)
        quiet = outcome(publisher.publish, made + 1)
    live = torch.zeros(1 << 21, dtype=torch.int16)
    with segue.Receiver(store) as receiver:
        receiver.bind("w", live)
        receiver.update()
    return refused, seen == list(range(1, made + 1)), quiet[1] == made + 1, \
        live.equal(weights["w"])


def test_writes_that_torch_does_not_count(tmp_path):
    [(refused, seen, quiet, same)] = run_ranks(1, written_through_data, str(tmp_path))
    assert "was written to while it was compared" in refused
    assert seen and quiet and same
