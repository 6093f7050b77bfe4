# SPDX-License-Identifier: Apache-2.0
"""Who owns which tensor: balanced, the same whoever works it out, and refused where ranks overlap,
disagree or leave a gap."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import segue
from segue.distributed.partitions import Partition, hold, hold_all
from segue.distributed.sharing import Part, Shared, share_out


def whole(name, shape, dtype="bfloat16"):
    return [name, dtype, list(shape), [0] * len(shape), list(shape)]


def box(name, shape, offset, size, dtype="bfloat16"):
    return [name, dtype, list(shape), list(offset), list(size)]


def test_copies_are_balanced_by_bytes():
    sizes = [900, 500, 400, 300, 100, 100, 50, 50]
    declared = [[whole(f"t{i}", (size,)) for i, size in enumerate(sizes)] for _ in range(3)]
    shared = share_out(declared, range(3))
    owned = [sum(t.nbytes for t in shared if t.owner == rank) for rank in range(3)]
    assert sum(owned) == 2 * sum(sizes)
    assert max(owned) <= 2 * 900
    assert all(t.parts == () for t in shared)
    # The order in which a rank names its tensors changes nothing.
    assert share_out([list(reversed(declared[0])), declared[1], declared[2]], range(3)) == shared


def test_the_plan_s_order_is_that_of_bytes():
    names = ["b", "é", "a.10", "a.2", "\U0001f600", "Z"]
    shared = share_out([[whole(name, (3,)) for name in names]], [0])
    assert [t.name for t in shared] == sorted(names, key=str.encode)
    assert [Shared.from_json(t.to_json()) for t in shared] == shared


def test_a_holder_of_the_whole_owns_it():
    shared, = share_out([[box("t", (4, 2), (0, 0), (2, 2))], [whole("t", (4, 2))],
                         [box("t", (4, 2), (2, 0), (2, 2))]], range(3))
    assert (shared.owner, shared.parts) == (1, ())


def test_parts_come_from_one_holder_each():
    parts = [box("t", (4, 6), (0, 0), (4, 3)), box("t", (4, 6), (0, 3), (4, 3))]
    shared, = share_out([[parts[0]], [parts[1]], [parts[0]], [parts[1]]], range(4))
    assert shared.owner == 0
    assert shared.parts == (Part(0, (0, 0), (4, 3)), Part(1, (0, 3), (4, 3)))
    # Where others have copies, who has sent least sends.
    others = [parts[1], ["u", *parts[1][1:]]]
    shared = share_out([[parts[0], ["u", *parts[0][1:]]], [*others, whole("v", (999,))],
                        [*others, whole("w", (999,))]], range(3))
    assert [[part.rank for part in t.parts] for t in shared] == [[0, 1], [0, 2], [], []]


def test_nothing_has_no_owner():
    shared, = share_out([[whole("t", (0, 4))], []], range(2))
    assert shared.owner is None


@pytest.mark.parametrize("declared, words", [
    ([[whole("t", (4, 8))], [whole("t", (8, 4))]],
     "[4, 8] on rank 5 and bfloat16 [8, 4] on rank 7"),
    ([[whole("t", (4,))], [whole("t", (4,), "float16")]], "bfloat16 [4] on rank 5 and float16"),
    ([[box("t", (4,), (0,), (2,))], [box("t", (4,), (1,), (3,))]], "rank 5"),
    ([[box("t", (4, 4), (0, 0), (4, 2))], [box("t", (4, 4), (2, 1), (2, 3))]], "overlap"),
    ([[box("t", (4,), (0,), (2,))], [box("t", (4,), (3,), (1,))]], "3 elements of 4"),
    ([[box("t", (4,), (0,), (2,))], []], "a rank or a partition is missing"),
])
def test_refusals(declared, words):
    with pytest.raises(segue.InvalidArgumentError) as refused:
        share_out(declared, [5, 7])
    assert "tensor 't'" in str(refused.value) and words in str(refused.value)


def test_what_cannot_be_held():
    one = torch.zeros(4, 6)
    for value, words in [
            (Partition(one, (8, 6), (5, 0)), "not within"),
            (Partition(one, (8, 6), (0,)), "2 dimensions"),
            (Partition([1], (8, 6), (0, 0)), "list"),
            ([1, 2], "list"),
            (one.to_sparse(), "not dense"),
            (torch.empty(3, device="meta"), "without memory"),
            (torch.zeros(3, dtype=torch.complex64).conj(), "conjugate")]:
        with pytest.raises(segue.InvalidArgumentError, match=words):
            hold("t", value)
    with pytest.raises(segue.UnsupportedError, match="complex128"):
        hold("t", torch.zeros(3, dtype=torch.complex128))
    with pytest.raises(segue.InvalidArgumentError, match="twice"):
        hold_all([("t", one), ("t", one)])
    assert hold_all([("t", Partition(one[:0], (8, 6), (8, 0)))]) == {}
