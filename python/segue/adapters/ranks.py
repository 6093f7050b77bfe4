# SPDX-License-Identifier: Apache-2.0
"""Ranks: the tensor-parallel ranks of one engine, in step.

Whatever one rank finds wrong before the receivers speak to each other (a parameter that nothing
knows, a store that is not there) must stop all of them, or the others would wait. So the ranks
agree after each such step, over the same sums that receivers use.
"""

from __future__ import annotations

import array
import datetime
from collections.abc import Callable, Sequence

from .. import InvalidArgumentError, UnavailableError, UnsupportedError

MODULUS = 1 << 64
TEXT_WORDS = 64  # Of a rank's failure that the others are told: 512 bytes.

# Adds words up over all ranks, modulo 2^64; every rank calls it, in the same order.
Sum = Callable[[Sequence[int]], list[int]]


class Ranks:
    """Rank `rank` of `size`. `sum_words` adds up over all of them, `receiver_sum` does so for their
    receivers, which call it from a background thread too: the two never meet each other's calls.
    One rank needs neither."""

    def __init__(self, rank: int = 0, size: int = 1, sum_words: Sum | None = None,
                 receiver_sum: Sum | None = None):
        if not 0 <= rank < size:
            raise InvalidArgumentError(f"rank {rank} of {size} ranks")
        if size > 1 and (sum_words is None or receiver_sum is None):
            raise InvalidArgumentError(f"{size} ranks need two ways to add up over all of them")
        self.rank, self.size = rank, size
        self.sum_words = sum_words if size > 1 else None
        self.receiver_sum = receiver_sum if size > 1 else None

    def receiver_words(self, words: bytearray) -> None:
        """What a receiver takes as `sum_over_ranks`: 64-bit words, added up in place."""
        values = array.array("Q", bytes(words))
        words[:] = array.array("Q", self.receiver_sum(values.tolist())).tobytes()

    def agree(self, error: Exception | None, what: str) -> None:
        """Returns if no rank has an error; raises this rank's own, or UnavailableError with the
        others'. Every rank calls it."""
        if self.sum_words is None:
            if error is not None:
                raise error
            return
        words = [0] * (self.size * TEXT_WORDS)
        if error is not None:
            words[self.rank * TEXT_WORDS:(self.rank + 1) * TEXT_WORDS] = _to_words(
                f"{type(error).__name__}: {error}")
        summed = self.sum_words(words)
        if error is not None:
            raise error
        failures = []
        for rank in range(self.size):
            text = _from_words(summed[rank * TEXT_WORDS:(rank + 1) * TEXT_WORDS])
            if text:
                failures.append(f"rank {rank}: {text}")
        if failures:
            raise UnavailableError(f"{what} failed at other ranks, nothing was changed here: " +
                                   "; ".join(failures))

    def all(self, flag: bool) -> bool:
        """Whether all ranks say so. Every rank calls it."""
        return flag if self.sum_words is None else self.sum_words([int(flag)])[0] == self.size

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether any rank has it. Every rank calls it, with as many flags."""
        if self.sum_words is None:
            return list(flags)
        if not self.all(self.sum_words([len(flags)])[0] == len(flags) * self.size):
            raise InvalidArgumentError("the ranks of an engine have different checkpoints")
        return [count > 0 for count in self.sum_words([int(flag) for flag in flags])]

    def from_first(self, value: int) -> int:
        """What rank 0 gives."""
        if self.sum_words is None:
            return value
        return self.sum_words([value if self.rank == 0 else 0])[0]


def _to_words(text: str) -> list[int]:
    data = text.encode()[:TEXT_WORDS * 8].ljust(TEXT_WORDS * 8, b"\0")
    return [int.from_bytes(data[k:k + 8], "little") for k in range(0, len(data), 8)]


def _from_words(words: Sequence[int]) -> str:
    data = b"".join(word.to_bytes(8, "little") for word in words)
    return data.rstrip(b"\0").decode(errors="replace")


def torch_ranks(group: object, timeout_s: float = 600.0) -> Ranks:
    """The ranks of a torch process group, over gloo groups of their own: receivers speak from
    background threads, which must not come between what the engine sends over its groups. Every
    rank of `group` calls it."""
    try:
        import torch.distributed as dist
    except ImportError as error:
        raise UnsupportedError("ranks of an engine need torch, which is not installed") from error
    members = dist.get_process_group_ranks(group)
    if len(members) == 1:
        return Ranks()
    sums = [_gloo_sum(members, timeout_s) for _ in range(2)]
    return Ranks(dist.get_rank(group), len(members), *sums)


def _gloo_sum(members: list[int], timeout_s: float) -> Sum:
    import torch
    import torch.distributed as dist

    own = dist.new_group(members, timeout=datetime.timedelta(seconds=timeout_s), backend="gloo",
                         use_local_synchronization=True)

    def sum_words(words: Sequence[int]) -> list[int]:
        signed = [word - MODULUS if word >= MODULUS // 2 else word for word in words]
        tensor = torch.tensor(signed, dtype=torch.int64)
        dist.all_reduce(tensor, group=own)
        return [word % MODULUS for word in tensor.tolist()]

    return sum_words
