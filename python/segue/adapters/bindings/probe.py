# SPDX-License-Identifier: Apache-2.0
"""Probing: where a tensor lies that no table knows, told by its bytes.

The tensor of the base checkpoint, or the slice of it that this rank may hold, is looked for in the
engine's parameters: as it is, transposed, behind other rows (fused), with padding, and in the tiles
of block scales. One place is an answer. None, or two, is not: nothing is guessed. What else the
parameter holds must be other tensors of the checkpoint, or zeros. A tensor whose
bytes could be anywhere (a few bytes, or all alike) is refused for the same reason.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .checkpoint import Stored, number_in
from .elements import integers, numpy, stored_integers
from .placement import Axis, Live, Placement, blocked
from .rules import Part
from .topology import Share, Topology
from .twins import Twins, slices_of

BYTES_MIN = 32  # Below, two tensors may be alike by chance.


@dataclasses.dataclass(frozen=True)
class _Needle:
    """A matrix that is looked for, and where its elements lie in the checkpoint's tensor."""

    matrix: object
    offset: int
    row_stride: int
    column_stride: int
    share: Share


@dataclasses.dataclass(frozen=True)
class _Plane:
    """A matrix of a parameter: which index stays, and along which dimensions it runs."""

    live: Live
    matrix: object
    lead: tuple[int, ...]
    row_dim: int
    column_dim: int | None


@dataclasses.dataclass
class _Hunt:
    """A tensor that is looked for: needles by size, the largest first, and where each was found."""

    stored: Stored
    levels: list[list[_Needle]]
    matches: list[list[list[Part]]]


class Prober:
    """Looks in `lives`, apart from what `taken` has placed already."""

    def __init__(self, lives: Mapping[str, Live], taken: Iterable[Part], topology: Topology,
                 config: Mapping, twins: Twins, tensors: Mapping[str, Stored]):
        self._topology, self._twins, self._tensors = topology, twins, tensors
        self._zeros_of: dict[str, str] = {}
        self._heads = number_in(config, "num_key_value_heads", 0)
        self._lives = [live for live in lives.values() if live.elements]
        self._taken: dict[str, list[Part]] = {}
        for part in taken:
            self._take(part)

    def find(self, unplaced: Sequence[Stored]) -> dict[str, list[Part] | str]:
        """For each tensor its parts, or why there are none."""
        found = self._verdicts(unplaced)
        claims: dict[tuple, str] = {}
        for name, parts in list(found.items()):
            for part in parts if not isinstance(parts, str) else ():
                key = (part.live.name, part.placement.start)
                other = claims.setdefault(key, name)
                if other != name:
                    text = "'{}' has the same bytes, and both were found in '{}'"
                    found[name] = text.format(other, part.live.name)
                    found[other] = text.format(name, part.live.name)
        for parts in found.values():
            for part in parts if not isinstance(parts, str) else ():
                self._take(part)
        return {name: self._beside(parts) or parts for name, parts in found.items()}

    def _beside(self, parts: list[Part] | str) -> str:
        """Why not, if a parameter holds more than what was placed in it and zeros."""
        for part in parts if not isinstance(parts, str) else ():
            if part.placement.flat:
                continue  # Its padding was compared already.
            beside = integers(part.live)[~self._mask(part.live)]
            if (beside != 0).any():
                return (f"its bytes are in '{part.live.name}', beside values that nothing would "
                        "bring up to date")
            zeros = self._zeros(part.live.dtype) if beside.size else ""
            if zeros:
                return (f"its bytes are in '{part.live.name}', beside zeros, which may be padding "
                        f"or those of '{zeros}'")
        return ""

    def _zeros(self, dtype: str) -> str:
        """A tensor of the checkpoint that is zeros, or of which some rank's share is."""
        if dtype not in self._zeros_of:
            self._zeros_of[dtype] = next((
                stored.name for stored in self._tensors.values()
                if stored.dtype == dtype and math.prod(stored.places) and any(
                    not needle.matrix.any()
                    for level in self._needles(stored_integers(stored)) for needle in level)), "")
        return self._zeros_of[dtype]

    def _take(self, part: Part) -> None:
        self._taken.setdefault(part.live.name, []).append(part)

    def _mask(self, live: Live):
        """Which elements of a parameter have been placed."""
        mask = numpy.zeros(live.shape, bool)
        for part in self._taken.get(live.name, []):
            if part.placement.flat:
                mask[...] = True
            else:
                mask[_index(part.placement)] = True
        return mask

    def _verdicts(self, unplaced: Sequence[Stored]) -> dict[str, list[Part] | str]:
        """The parameters one by one, since each may have to be copied from a GPU."""
        found: dict[str, list[Part] | str] = {}
        hunts = []
        for stored in unplaced:
            tensor = stored_integers(stored)
            if tensor.nbytes < BYTES_MIN:
                found[stored.name] = "it is too small to be told by its bytes"
            elif (tensor == tensor.flat[0]).all():
                found[stored.name] = "all its elements are alike"
            else:
                levels = list(self._needles(tensor))
                hunts.append(_Hunt(stored, levels, [[] for _ in levels]))
        for live in self._lives if hunts else ():
            values = integers(live)
            for hunt in hunts:
                self._search(hunt, live, values)
        found.update({hunt.stored.name: self._verdict(hunt) for hunt in hunts})
        return found

    def _verdict(self, hunt: _Hunt) -> list[Part] | str:
        for matches in hunt.matches:
            unique = list({(m[0].live.name, m[0].placement): m for m in matches}.values())
            if len(unique) > 1:
                places = sorted({m[0].live.name for m in unique})
                return f"its bytes are at {len(unique)} places, in {places[:4]}"
            if unique:
                return self._why_not(unique[0]) or unique[0]
        return "its bytes are nowhere in the engine"

    def _why_not(self, parts: list[Part]) -> str:
        """Bytes that another tensor has as well tell nothing, wherever that one was placed."""
        for part in parts:
            if self._overlaps(part):
                return f"its bytes are in '{part.live.name}', where another tensor was placed"
            for piece in slices_of(part):
                for other in self._twins.of(piece):
                    if other != piece.label:
                        return f"'{other}' has the same bytes"
        return ""

    def _needles(self, tensor) -> Iterator[list[_Needle]]:
        """What this rank may hold, the largest first; needles of one size together."""
        matrix = tensor.reshape(tensor.shape[0], -1) if tensor.ndim else tensor.reshape(1, 1)
        height, width = matrix.shape
        for parts in sorted({*self._topology.splits(), *self._head_splits()}):
            shares = [self._topology.share(parts)] if self._topology.size % parts == 0 else []
            if self._heads and self._heads < self._topology.size and parts == self._heads:
                shares = [self._topology.heads(self._topology.size, self._heads)]
            level = []
            for share in shares:
                if height % parts == 0 and height >= parts:
                    n = height // parts
                    rows = matrix[share.index * n:(share.index + 1) * n]
                    level.append(_Needle(rows, share.index * n * width, width, 1, share))
                if parts > 1 and width % parts == 0 and width > 1:
                    n = width // parts
                    part = matrix[:, share.index * n:(share.index + 1) * n]
                    level.append(_Needle(part, share.index * n, width, 1, share))
            yield level

    def _head_splits(self) -> list[int]:
        return [self._heads] if 0 < self._heads < self._topology.size else []

    def _search(self, hunt: _Hunt, live: Live, values) -> None:
        for needles, matches in zip(hunt.levels, hunt.matches, strict=True):
            for needle in needles:
                matches += self._search_one(hunt.stored, needle, live, values)
            if matches:
                return  # Smaller ones of it are there too.

    def _search_one(self, stored: Stored, needle: _Needle, live: Live,
                    values) -> Iterator[list[Part]]:
        if live.dtype != stored.dtype or live.elements < needle.matrix.size:
            return
        if needle.matrix.nbytes < BYTES_MIN or (needle.matrix == needle.matrix.flat[0]).all():
            return
        for plane in _planes(live, values):
            yield from self._in_plane(stored, needle, plane)
        if live.width == 1 and live.contiguous:
            yield from self._in_blocks(stored, needle, live, values)

    def _in_plane(self, stored: Stored, needle: _Needle, plane: _Plane) -> Iterator[list[Part]]:
        """Behind any number of rows, from the first column on."""
        height, width = needle.matrix.shape
        if plane.matrix.shape[0] < height or plane.matrix.shape[1] < width:
            return
        head = min(width, 16)
        candidates = numpy.flatnonzero(
            (plane.matrix[:, :head] == needle.matrix[0, :head]).all(axis=1))
        for row in candidates.tolist():
            there = plane.matrix[row:row + height, :width]
            if there.shape[0] != height or not numpy.array_equal(there, needle.matrix):
                continue
            yield [self._part(stored, needle, plane, row)]

    def _part(self, stored: Stored, needle: _Needle, plane: _Plane, row: int) -> Part:
        height, width = needle.matrix.shape
        start = list(plane.lead)
        start[plane.row_dim] = row
        axes = [Axis(height, needle.row_stride, plane.row_dim)]
        if plane.column_dim is not None:
            axes.append(Axis(width, needle.column_stride, plane.column_dim))
        return Part(stored, plane.live, Placement(needle.offset, tuple(start), tuple(axes)),
                    needle.share.copy, needle.share.copies)

    def _overlaps(self, part: Part) -> bool:
        if part.live.name not in self._taken or part.placement.flat:
            return part.live.name in self._taken
        return bool(self._mask(part.live)[_index(part.placement)].any())

    def _in_blocks(self, stored: Stored, needle: _Needle, live: Live,
                   values) -> Iterator[list[Part]]:
        """In tiles of 128 x 4, if the parameter is as long as those of the needle."""
        rows, columns = needle.matrix.shape
        padded = -(-rows // 128) * -(-columns // 4) * 512
        if columns < 2 or live.elements != padded:
            return
        flat = values.reshape(-1)
        row, column = numpy.arange(rows)[:, None], numpy.arange(columns)[None, :]
        tile = (row // 128) * -(-columns // 4) + column // 4
        place = tile * 512 + (row % 32) * 16 + (row % 128) // 32 * 4 + column % 4
        beside = numpy.ones(padded, bool)
        beside[place] = False
        if numpy.array_equal(flat[place], needle.matrix) and not flat[beside].any():
            share = needle.share
            yield [Part(stored, live, placement, share.copy, share.copies) for placement in blocked(
                rows, columns, needle.offset, needle.row_stride, needle.column_stride)]


def _index(placement: Placement) -> tuple:
    """The elements of a parameter that a placement names, as numpy takes them."""
    index: list = list(placement.start)
    for axis in placement.axes:
        begin = placement.start[axis.dim]
        index[axis.dim] = slice(begin, begin + axis.count * axis.step, axis.step)
    return tuple(index)


def _planes(live: Live, values) -> Iterator[_Plane]:
    """The matrices of a parameter, as they are and transposed; of three dimensions each one."""
    if values.ndim == 1:
        yield _Plane(live, values[:, None], (0,), 0, None)
    elif values.ndim == 2:
        yield _Plane(live, values, (0, 0), 0, 1)
        yield _Plane(live, values.T, (0, 0), 1, 0)
    elif values.ndim == 3:
        for k in range(values.shape[0]):
            yield _Plane(live, values[k], (k, 0, 0), 1, 2)
            yield _Plane(live, values[k].T, (k, 0, 0), 2, 1)
