# SPDX-License-Identifier: Apache-2.0
"""Exchange: brings the partitions of each tensor to its owner, point to point over gloo.

In rounds: in round i every owner gets the i-th of the tensors that it has to put together, in the
plan's order, which all ranks know. So an owner has one such tensor in memory at a time, a rank
sends what it holds from where it lies (for the round a copy, where that is on another device or
not contiguous), and each byte crosses the network at most once. No rank can wait in a
circle: sends of a round are posted before its receives, and whoever is in the earliest round waits
only for ranks that have posted theirs.

A checksum follows each partition, since what comes is published as the trainer's bytes: whatever a
network or a write at the wrong time makes of them is refused.

What must hold: a rank that takes part goes through all rounds, or breaks the links, so that the
others do not wait for it. Links are a gloo group of our own: a failure makes them unusable, and
must not do that to the trainer's.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import distributed as dist

from .. import _core
from ..errors import CorruptionError, UnavailableError
from .partitions import Held
from .sharing import Part, Shared, bytes_of

DATA, CHECKSUM = 0, 1  # Tags: messages of one tag come in order.
CHECKSUM_BYTES = 16

# Bytes of memory for a whole tensor, as a tensor of uint8; of the name's tensor.
Place = Callable[[str, int], torch.Tensor]


class LostRankError(UnavailableError):
    """`rank` (in the group) did not answer while tensors were moved."""

    def __init__(self, message: str, rank: int):
        super().__init__(message)
        self.rank = rank


class Links:
    """Connections between the ranks of a group; of use until a call fails."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: float):
        self.rank, self._timeout = rank, datetime.timedelta(seconds=timeout)
        try:
            self._group = dist.ProcessGroupGloo(store, rank, size, self._timeout)
        except RuntimeError as error:
            raise UnavailableError(f"the ranks could not connect by gloo: {error}") from error

    def send(self, data: torch.Tensor, rank: int) -> Callable[[], None]:
        """Begins; `data` (contiguous bytes, the CPU's) stays as it is until what is returned has
        been called, which waits."""
        first = self._begin("send", data, rank, DATA)
        second = self._begin("send", _checksum(data), rank, CHECKSUM)  # The data is under way.

        def wait():
            first()
            second()

        return wait

    def receive(self, data: torch.Tensor, rank: int) -> Callable[[], None]:
        """Begins to fill `data`, contiguous bytes. What is returned waits; CorruptionError where
        they are not what was sent."""
        told = torch.empty(CHECKSUM_BYTES, dtype=torch.uint8)
        first = self._begin("recv", data, rank, DATA)
        second = self._begin("recv", told, rank, CHECKSUM)

        def wait():
            first()
            second()
            if not told.equal(_checksum(data)):
                raise CorruptionError("the bytes that came are not those that were sent (or were "
                                      "written to meanwhile)")

        return wait

    def _begin(self, what, data, rank, tag):
        if self._group is None:
            raise LostRankError("this rank has cut its connections", rank)
        try:
            work = getattr(self._group, what)([data], rank, tag)
        except RuntimeError as error:
            raise self._lost(rank, error) from error

        def wait(_kept=data):
            try:
                work.wait(self._timeout)
            except RuntimeError as error:
                raise self._lost(rank, error) from error

        return wait

    def close(self) -> None:
        """Ends the connections: others that wait for this rank fail."""
        group, self._group = self._group, None
        if hasattr(group, "abort"):
            group.abort()

    @staticmethod
    def _lost(rank, error):
        # Without gloo's place in its source before, and its advice after.
        text = re.sub(r"^\[[^\]]*\] ?|\. This is typically.*|\n.*", "", str(error), flags=re.DOTALL)
        return LostRankError(f"the connection to it failed ({text})", rank)


class Exchange:
    """The moves that `shared` asks for, of rank `rank` of `size`."""

    def __init__(self, shared: Sequence[Shared], rank: int, size: int):
        self.rank = rank
        moved: list[list[Shared]] = [[] for _ in range(size)]
        for tensor in shared:
            if tensor.parts:
                moved[tensor.owner].append(tensor)
        self._rounds = [[tensors[number] for tensors in moved if number < len(tensors)]
                        for number in range(max(map(len, moved), default=0))]
        self.largest = max((tensor.nbytes for tensor in moved[rank]), default=0)
        """Bytes of the largest tensor that this rank puts together."""
        self.needed = bool(self._rounds)
        """Whether any rank sends anything."""
        self._pieces = torch.empty(0, dtype=torch.uint8)

    def run(self, links: Links, held: Mapping[str, Held], place: Place
            ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields each tensor that this rank puts together, in the plan's order, in the memory that
        `place` gives, which is free again when the next one is asked for. Where it ends in any
        other way than after the last round the links are closed, before memory that they might
        still write to is let go of."""
        try:
            yield from self._run(links, held, place)
        except BaseException:
            if links is not None:
                links.close()
            raise

    def _run(self, links, held, place):
        for tensors in self._rounds:
            sends = [links.send(_bytes_of(held[tensor.name].local), tensor.owner)
                     for tensor in tensors if tensor.owner != self.rank
                     for part in tensor.parts if part.rank == self.rank]
            for tensor in tensors:
                if tensor.owner == self.rank:
                    try:
                        whole = self._put_together(links, tensor, held, place)
                    except CorruptionError as error:
                        raise CorruptionError(f"tensor '{tensor.name}': {error}") from error
                    yield tensor.name, whole
            for wait in sends:
                wait()
        self._pieces = torch.empty(0, dtype=torch.uint8)

    def _piece(self, size):
        if self._pieces.numel() < size:
            self._pieces = torch.empty(size, dtype=torch.uint8)
        return self._pieces[:size]

    def _put_together(self, links, tensor, held, place):
        dtype = getattr(torch, tensor.dtype)
        memory = place(tensor.name, tensor.nbytes)
        whole = memory[:tensor.nbytes].view(dtype).reshape(tensor.shape)
        in_place = []
        for part in tensor.parts:
            box = whole[_slices(part)]
            if part.rank == self.rank:
                _copy(box, held[tensor.name].local)
            elif box.is_contiguous():
                in_place.append(links.receive(_bytes_of(box), part.rank))
            else:
                # One at a time, through one buffer: at most one partition is there twice.
                piece = self._piece(bytes_of(tensor.dtype, part.size))
                links.receive(piece, part.rank)()
                _copy(box, piece.view(dtype).reshape(part.size))
        for wait in in_place:
            wait()
        return whole


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the bytes lie in the CPU's memory, one after the other."""
    return tensor.device.type == "cpu" and tensor.is_contiguous()


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the CPU's memory, contiguous; itself where it is that already."""
    return tensor.to("cpu").contiguous()


def _checksum(data):
    found = _core.checksum(data.data_ptr(), data.numel())
    return torch.frombuffer(bytearray(found), dtype=torch.uint8)


def _bytes_of(tensor):
    return plain(tensor).reshape(-1).view(torch.uint8)


def _copy(to, tensor):
    """Bit for bit, also where torch has no copy of the dtype, or not between devices."""
    if to.dim() == 0:
        to, tensor = to.reshape(1), tensor.reshape(1)
    to.view(torch.uint8).copy_(tensor.contiguous().view(torch.uint8))


def _slices(part: Part):
    return tuple(slice(begin, begin + size) for begin, size in zip(part.offset, part.size))
