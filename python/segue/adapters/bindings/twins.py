# SPDX-License-Identifier: Apache-2.0
"""Twins: tensors of a checkpoint that its bytes cannot tell apart.

Where two tensors are alike, no proof notices that they were bound the wrong way round, and the next
update writes each of them into the other's place. So a twin is bound only where something else says
which it is. A table asserts the words of names: which layer norm is which is fixed in the engine's
code. It does not assert numbers, since an engine may have permuted its experts or layers: a number
counts where at least one tensor under it is like no other, and its bytes are where the table has
them. An architecture without a table asserts nothing. Compared is what this rank holds: a slice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from .checkpoint import Stored
from .elements import need_numpy, numpy
from .rules import Part

PROBE_BYTES = 64  # Compared before all of it is.
_STACKED = re.compile(r"(.*\.experts)\.(\w+.*)")  # One tensor for all experts.


@dataclasses.dataclass(frozen=True)
class Slice:
    """Elements of a tensor; `label`: its name, with an expert's number where it holds many."""

    label: str
    stored: Stored
    offset: int
    axes: tuple[tuple[int, int], ...]  # (count, stride) in elements of the tensor.

    def first(self) -> bytes:
        """Its first bytes, as many as lie one behind the other."""
        run = next((count for count, stride in self.axes if stride == 1), 1)
        width = self.stored.width
        begin = self.offset * width
        return bytes(self.stored.read()[begin:begin + min(PROBE_BYTES, run * width)])

    def digest(self) -> bytes:
        need_numpy()
        width = self.stored.width
        values = numpy.ndarray([count for count, _ in self.axes], numpy.dtype(f"u{width}"),
                               self.stored.read(), self.offset * width,
                               [stride * width for _, stride in self.axes])
        return hashlib.blake2b(numpy.ascontiguousarray(values)).digest()


class Twins:
    """Tells which tensors of a checkpoint are alike in a slice."""

    def __init__(self, tensors: Mapping[str, Stored]):
        self._same_form: dict[tuple, list[Stored]] = {}
        for stored in tensors.values():
            self._same_form.setdefault((stored.dtype, stored.places), []).append(stored)
        self._groups: dict[tuple, dict[str, list[str]]] = {}

    def of(self, piece: Slice) -> list[str]:
        """Labels of the slices that are alike `piece`, its own among them; empty if it has no twin.
        Looked for in the same place of all tensors of its dtype and shape."""
        stored = piece.stored
        stacked = piece.label != stored.name
        key = (stored.dtype, stored.places, piece.axes, stacked,
               piece.offset % _expert_elements(stored) if stacked else piece.offset)
        if key not in self._groups:
            others = self._same_form[stored.dtype, stored.places]
            pieces = [p for other in others for p in (
                _experts_at(other, key[-1], piece.axes) if stacked else
                [dataclasses.replace(piece, label=other.name, stored=other)])]
            self._groups[key] = _alike(pieces)
        return self._groups[key].get(piece.label, [])


def _alike(pieces: Sequence[Slice]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for same_begin in _by(pieces, Slice.first):
        for same in _by(same_begin, Slice.digest):
            labels = [piece.label for piece in same]
            groups.update(dict.fromkeys(labels, labels))
    return groups


def _by(pieces: Iterable[Slice], key) -> Iterator[list[Slice]]:
    """Those that have a key in common, two or more of them."""
    found: dict[bytes, list[Slice]] = {}
    for piece in pieces:
        found.setdefault(key(piece), []).append(piece)
    return (same for same in found.values() if len(same) > 1)


def slice_of(stored: Stored, offset: int, axes: Iterable[tuple[int, int]]) -> Slice:
    """The slice with these axes of (count, stride); those of one step say nothing."""
    kept = sorted((axis for axis in axes if axis[0] != 1), key=lambda axis: -axis[1])
    return Slice(stored.name, stored, offset, tuple(kept))


def slices_of(part: Part) -> list[Slice]:
    """What a part holds, experts one by one."""
    stored, placement = part.stored, part.placement
    if placement.elements == 0:
        return []
    axes = [(axis.count, axis.source_stride) for axis in placement.axes]
    if not _is_stacked(stored):
        return [slice_of(stored, placement.source_offset, axes)]
    inner = slice_of(stored, 0, [a for a in axes if a[1] != _expert_elements(stored)]).axes
    size = _expert_elements(stored)
    first, rest = divmod(placement.source_offset, size)
    count = next((count for count, stride in axes if stride == size), 1)
    return [piece for e, piece in enumerate(_experts_at(stored, rest, inner))
            if first <= e < first + count]


def _is_stacked(stored: Stored) -> bool:
    return len(stored.places) == 3 and _STACKED.fullmatch(stored.name) is not None


def _expert_elements(stored: Stored) -> int:
    return stored.places[1] * stored.places[2]


def _experts_at(stored: Stored, offset: int, axes: tuple) -> list[Slice]:
    prefix, leaf = _STACKED.fullmatch(stored.name).groups()
    return [Slice(f"{prefix}.{e}.{leaf}", stored, offset + e * _expert_elements(stored), axes)
            for e in range(stored.places[0])]


class Doubts:
    """What is known to be wrong with a table. `suspects`: tensors that some rank has not where the
    table has them; `trusted(name)`: whether the table asserts the words of this name."""

    def __init__(self, suspects: Collection[str], trusted: Callable[[str], bool]):
        self.suspects, self.trusted = frozenset(suspects), trusted


def unconfirmed(twins: Twins, parts: Iterable[Part], doubts: Doubts) -> dict[str, str]:
    """Tensors of `parts`, placed by a table, that may be where their twins belong: name -> why."""
    groups = [(piece, twins.of(piece)) for part in parts for piece in slices_of(part)]
    confirmed = {prefix for piece, alike in groups for prefix in _numbers(piece.label)
                 if not alike and piece.stored.name not in doubts.suspects}
    variants: dict[int, dict[tuple, set[str]]] = {}
    reasons = {}
    for piece, alike in groups:
        if not alike:
            continue
        if id(alike) not in variants:
            variants[id(alike)] = _variants(alike)
        why = _why_not(piece, alike, variants[id(alike)], confirmed, doubts)
        if why:
            reasons[piece.stored.name] = why
    return reasons


def _numbers(label: str) -> list[tuple[str, ...]]:
    """What stands before and with each number of a name."""
    words = tuple(label.split("."))
    return [words[:k + 1] for k, word in enumerate(words) if word.isdigit()]


def _variants(labels: Iterable[str]) -> dict[tuple, set[str]]:
    """What the names go on with, behind each beginning."""
    found: dict[tuple, set[str]] = {}
    for label in labels:
        words = tuple(label.split("."))
        for k in range(len(words) + 1):
            found.setdefault(words[:k], set()).add(words[k] if k < len(words) else "")
    return found


def _why_not(piece: Slice, alike: Sequence[str], variants: Mapping[tuple, set[str]],
             confirmed: Collection[tuple], doubts: Doubts) -> str:
    twin = next((label for label in alike if label != piece.label), piece.label)
    same = f"its bytes here are also those of '{twin}'"
    if piece.stored.name in doubts.suspects:
        return same
    words = tuple(piece.label.split("."))
    for k, word in enumerate(words):
        others = variants[words[:k]] - {word}
        if any(other.isdigit() for other in others) and word.isdigit() and (
                words[:k + 1] not in confirmed):
            return f"{same}, and nothing tells '{'.'.join(words[:k + 1])}' from others like it"
        if any(not (other.isdigit() and word.isdigit()) for other in others) and (
                not doubts.trusted(piece.stored.name)):
            return f"{same}, and no table that holds here says which is which"
    return ""
