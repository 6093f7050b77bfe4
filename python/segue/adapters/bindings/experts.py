# SPDX-License-Identifier: Apache-2.0
"""Rules for mixture-of-experts layers: one parameter `w13` (gate, then up) and one `w2` (down) for
all experts that a rank holds, whether the checkpoint has a tensor for each expert or one for all.

How many experts a rank holds and how each is cut follows from the parameter's shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .checkpoint import Stored
from .placement import Axis, Live, Placement
from .rules import Context, Mismatch, Part, Rule, stored_scalar
from .topology import Share

_GATE, _UP, _DOWN = ("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")
_WITHIN = ("", "routed_experts.")  # SGLang and older vLLM; vLLM since its expert runner.


def per_expert(context: Context, stored: Stored, match: re.Match) -> list[Part] | None:
    """`...experts.7.up_proj.weight`: groups prefix (up to `experts.`), expert, slot, leaf."""
    return _place(context, stored, match["prefix"], int(match["expert"]), match["slot"],
                  match["leaf"])


def shared_as_expert(context: Context, stored: Stored, match: re.Match) -> list[Part] | None:
    """A shared expert that the engine keeps behind the routed ones: groups prefix, slot, leaf."""
    prefix = match["prefix"] + "experts."
    routed = context.experts.get(prefix, 0)
    if routed == 0:
        return None
    return _place(context, stored, prefix, routed, match["slot"], match["leaf"], 1)


def _parameter(context: Context, stored: Stored, prefix: str, slot: str, leaf: str) -> Live | None:
    base = "w2_" if slot in _DOWN else "w13_"
    for within in _WITHIN:
        if f"{prefix}{within}{base}{leaf}" in context.lives:
            return context.live(f"{prefix}{within}{base}{leaf}", stored)
    return None


def _place(context: Context, stored: Stored, prefix: str, expert: int, slot: str, leaf: str,
           extra: int = 0) -> list[Part] | None:
    live = _parameter(context, stored, prefix, slot, leaf)
    if live is None:
        return None
    if not live.shape:
        raise Mismatch(f"'{live.name}' is one value for all experts")
    total = context.experts.get(prefix, 0)
    # A shared expert among them takes a place at every rank, and only without expert parallelism.
    if live.shape[0] > total and live.shape[0] - total <= 1:
        groups, local = 1, live.shape[0]
    elif extra:
        return None
    else:
        groups, local = total // live.shape[0], live.shape[0]
        if groups * local != total or context.topology.size % groups:
            raise Mismatch(f"'{live.name}' holds {local} experts, which is no share of {total}")
    for parts in sorted({context.topology.size // groups, 1}, reverse=True):
        group, share = context.topology.expert(groups, parts)
        placement = _in_expert(stored, live, slot, share, expert % local)
        if placement is not None:
            if expert // local != group:
                return []
            return [Part(stored, live, placement, share.copy, share.copies)]
    raise Mismatch(f"'{live.name}' has the shape {list(live.shape)}, which is no slice of experts "
                   f"of {list(stored.places)}")


def _in_expert(stored: Stored, live: Live, slot: str, share: Share,
               local: int) -> Placement | None:
    shape = stored.places
    if stored_scalar(stored):
        return _scalar(live, slot, local)
    down = slot in _DOWN
    cut = 1 if down else 0  # The dimension that ranks share.
    if down and (len(shape) < 2 or shape[1] == 1):
        count, begin = list(shape), [0] * len(shape)  # Not cut: scales and biases of rows.
        if share.parts != 1 and live.shape[1:] != tuple(count):
            return None
    else:
        if shape[cut] % share.parts:
            return None
        count, begin = list(shape), [0] * len(shape)
        count[cut] //= share.parts
        begin[cut] = share.index * count[cut]
    expected = tuple(count) if down else (2 * count[0], *count[1:])
    if live.shape[1:] != expected:
        return None
    first = count[0] if slot in _UP else 0
    stride, axes, offset = 1, [], 0
    for dim in reversed(range(len(shape))):
        axes.insert(0, Axis(count[dim], stride, dim + 1))
        offset += begin[dim] * stride
        stride *= shape[dim]
    return Placement(offset, (local, first, *([0] * (len(shape) - 1))), tuple(axes))


def _scalar(live: Live, slot: str, local: int) -> Placement | None:
    """One scale an expert: [experts] for `w2`, [experts, 2] for `w13`."""
    if slot in _DOWN:
        return Placement(0, (local,) + (0,) * (len(live.shape) - 1), ()) if (
            live.elements == live.shape[0]) else None
    if live.shape[1:] == (2,):
        return Placement(0, (local, 1 if slot in _UP else 0), ())
    return None


def all_experts(slot: str) -> Rule:
    """One tensor for all experts: `gate_up_proj` [experts, 2 x intermediate, hidden] (gate, then
    up) or `down_proj` [experts, hidden, intermediate]. Groups prefix and leaf."""

    def rule(context: Context, stored: Stored, match: re.Match) -> list[Part] | None:
        leaf = match["leaf"] or "weight"
        live = _parameter(context, stored, match["prefix"], slot, leaf)
        if live is None:
            return None
        shape = stored.places
        if len(shape) != 3 or len(live.shape) != 3 or shape[0] % live.shape[0]:
            raise Mismatch(f"'{live.name}' has the shape {list(live.shape)}, the checkpoint's "
                           f"tensor for all experts {list(shape)}")
        groups = shape[0] // live.shape[0]
        if context.topology.size % groups:
            raise Mismatch(f"'{live.name}' holds {live.shape[0]} of {shape[0]} experts at "
                           f"{context.topology.size} ranks")
        for parts in sorted({context.topology.size // groups, 1}, reverse=True):
            group, share = context.topology.expert(groups, parts)
            found = list(_of_all(shape, live, slot in _DOWN, group, share))
            if found:
                return [Part(stored, live, p, share.copy, share.copies) for p in found]
        raise Mismatch(f"'{live.name}' has the shape {list(live.shape)}, which is no slice of "
                       f"experts of {list(shape)}")

    return rule


def _of_all(shape, live: Live, down: bool, group: int, share: Share) -> Iterator[Placement]:
    _, height, width = shape
    experts = live.shape[0]
    first = group * experts * height * width
    if down:
        if width % share.parts or live.shape[1:] != (height, width // share.parts):
            return
        count = width // share.parts
        yield Placement(first + share.index * count, (0, 0, 0),
                        (Axis(experts, height * width, 0), Axis(height, width, 1),
                         Axis(count, 1, 2)))
        return
    half = height // 2
    if height % 2 or half % share.parts or live.shape[1:] != (2 * half // share.parts, width):
        return
    count = half // share.parts
    for k in range(2):
        yield Placement(first + (k * half + share.index * count) * width, (0, k * count, 0),
                        (Axis(experts, height * width, 0), Axis(count, width, 1),
                         Axis(width, 1, 2)))
