# SPDX-License-Identifier: Apache-2.0
"""Topology: which slice of a tensor a rank holds, and how many ranks hold the same one.

An engine of `size` ranks cuts a tensor into `parts` slices; where there are fewer slices than
ranks, several ranks hold the same one, and each of them is a copy with a number.
"""

from __future__ import annotations

import dataclasses

from ... import InvalidArgumentError


@dataclasses.dataclass(frozen=True)
class Share:
    """Slice `index` of `parts`; this rank's is copy number `copy` of `copies`."""

    index: int
    parts: int
    copy: int
    copies: int


@dataclasses.dataclass(frozen=True)
class Topology:
    """Rank `rank` of `size` that hold one model together. `attention`: ranks that share one
    attention layer, fewer than `size` where attention is data-parallel (0: all)."""

    rank: int = 0
    size: int = 1
    attention: int = 0

    def __post_init__(self):
        if not 0 <= self.rank < self.size:
            raise InvalidArgumentError(f"rank {self.rank} of {self.size} ranks")
        if self.attention and self.size % self.attention:
            raise InvalidArgumentError(
                f"{self.attention} ranks of attention do not divide {self.size} ranks")

    def splits(self) -> list[int]:
        """Into how many slices a layer may be cut, the most first."""
        return sorted({self.size, self.attention or self.size, 1}, reverse=True)

    def share(self, parts: int) -> Share:
        """Neighbouring ranks hold neighbouring slices; groups of `parts` ranks repeat them."""
        return Share(self.rank % parts, parts, self.rank // parts, self.size // parts)

    def heads(self, parts: int, heads: int) -> Share:
        """The same for `heads` key-value heads: where they are fewer than slices, neighbouring
        ranks hold the same head."""
        whole = self.share(parts)
        if heads >= parts:
            return whole
        if parts % heads:
            raise InvalidArgumentError(f"{heads} key-value heads do not divide {parts} ranks")
        alike = parts // heads
        return Share(whole.index // alike, heads, whole.copy * alike + whole.index % alike,
                     whole.copies * alike)

    def expert(self, groups: int, parts: int) -> tuple[int, Share]:
        """(expert group, slice of an expert): experts are cut into `groups`, each expert into
        `parts`; neighbouring ranks are of one group."""
        members = self.size // groups
        inner = self.rank % members
        return self.rank // members, Share(inner % parts, parts, inner // parts, members // parts)
