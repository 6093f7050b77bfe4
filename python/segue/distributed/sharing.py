# SPDX-License-Identifier: Apache-2.0
"""Sharing: which rank owns which tensor, and from whom the owner gets what it lacks.

A tensor has one owner, since a chunk of it has one row (docs/design.md). It is a rank that holds
all of it, or else one that holds a part; among those the one that owns the fewest bytes so far,
large tensors first. What ranks declare decides all of it, so it is the same wherever it is worked
out. Together the partitions must be the tensor, each element once, copies aside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from ..errors import InvalidArgumentError
from .partitions import Box


@dataclass(frozen=True)
class Part:
    """A box of a tensor that its owner gets from `rank`, or has itself."""

    rank: int
    offset: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True)
class Shared:
    """A tensor of the model. `owner`: None where it has no elements. `parts`: what the owner puts
    together; none where it holds the whole."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    owner: int | None
    parts: tuple[Part, ...]

    @property
    def nbytes(self) -> int:
        """Of the whole tensor."""
        return bytes_of(self.dtype, self.shape)

    def to_json(self) -> list:
        """For other ranks."""
        return [self.name, self.dtype, self.shape, self.owner,
                [[part.rank, part.offset, part.size] for part in self.parts]]

    @staticmethod
    def from_json(value: list) -> Shared:
        """What to_json gave, or its copy."""
        name, dtype, shape, owner, parts = value
        return Shared(name, dtype, tuple(shape), owner,
                      tuple(Part(rank, tuple(offset), tuple(size)) for rank, offset, size in parts))


def bytes_of(dtype: str, shape: Iterable[int]) -> int:
    """Of a tensor of torch's dtype."""
    return math.prod(shape) * getattr(torch, dtype).itemsize


def share_out(declared: Sequence[Iterable[list]], ranks: Sequence[int]) -> list[Shared]:
    """`declared`: of each rank what Held.declaration() says of all that it holds; `ranks`: what
    they are called in messages. In the plan's order (names' bytes). InvalidArgumentError, naming
    tensor and ranks, where they disagree, overlap or leave a gap."""
    tensors = _collect(declared, ranks)
    owned, sent = [0] * len(declared), [0] * len(declared)
    shared = {}
    by_size = sorted(tensors.items(), key=lambda item: (-bytes_of(*item[1][0]), item[0]))
    for name, ((dtype, shape), boxes) in by_size:
        if 0 in shape:
            shared[name] = Shared(name, dtype, shape, None, ())
            continue
        whole = boxes.get(((0,) * len(shape), shape))
        if whole is None:
            _check_cover(name, shape, boxes, ranks)
        holders = whole or sorted({rank for ranks in boxes.values() for rank in ranks})
        owner = min(holders, key=lambda rank: (owned[rank], rank))
        owned[owner] += bytes_of(dtype, shape)
        parts = () if whole else _choose_parts(dtype, boxes, owner, sent)
        shared[name] = Shared(name, dtype, shape, owner, parts)
    return [shared[name] for name in sorted(shared, key=str.encode)]


def _collect(declared, ranks):
    """{name: ((dtype, shape), {box: [ranks]})}."""
    tensors: dict[str, tuple[tuple, dict[Box, list[int]]]] = {}
    first = {}
    for rank, declarations in enumerate(declared):
        for name, dtype, shape, offset, size in declarations:
            kind = (dtype, tuple(shape))
            known, boxes = tensors.setdefault(name, (kind, {}))
            first.setdefault(name, rank)
            if kind != known:
                raise InvalidArgumentError(
                    f"tensor '{name}' is {known[0]} {list(known[1])} on rank "
                    f"{ranks[first[name]]} and {dtype} {shape} on rank {ranks[rank]}")
            boxes.setdefault((tuple(offset), tuple(size)), []).append(rank)
    return tensors


def _check_cover(name, shape, boxes, ranks):
    ordered = sorted(boxes)
    for number, one in enumerate(ordered):
        for other in ordered[number + 1:]:
            if one[0] and other[0][0] >= one[0][0] + one[1][0]:
                break  # So do all that begin later in the first dimension.
            if _overlap(one, other):
                raise InvalidArgumentError(
                    f"tensor '{name}': the partitions of rank {ranks[boxes[one][0]]} (at "
                    f"{list(one[0])}, {list(one[1])}) and of rank {ranks[boxes[other][0]]} (at "
                    f"{list(other[0])}, {list(other[1])}) overlap")
    count = sum(math.prod(size) for _, size in ordered)
    if count != math.prod(shape):
        raise InvalidArgumentError(
            f"tensor '{name}': ranks hold {count} elements of {math.prod(shape)}; a rank or a "
            "partition is missing")


def _overlap(one, other):
    return all(a < b + m and b < a + n for a, n, b, m in zip(one[0], one[1], other[0], other[1]))


def _choose_parts(dtype, boxes, owner, sent):
    parts = []
    for (offset, size), ranks in sorted(boxes.items()):
        rank = owner if owner in ranks else min(ranks, key=lambda rank: (sent[rank], rank))
        if rank != owner:
            sent[rank] += bytes_of(dtype, size)
        parts.append(Part(rank, offset, size))
    return tuple(parts)
