# SPDX-License-Identifier: Apache-2.0
"""Rules: how one tensor of a checkpoint lies in the parameters of an engine.

A rule knows names and the order in which tensors are fused; how many slices they are cut into
follows from the parameter's own shape, so that one rule serves every engine and every number of
ranks. A parameter whose shape fits no slicing is not for the rule to guess at: it says the reason.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping

from .checkpoint import Stored, number_in
from .placement import Axis, Live, Placement, box, widened
from .topology import Share, Topology


@dataclasses.dataclass(frozen=True)
class Part:
    """Elements of the checkpoint's tensor `stored` in `live`; copy number `copy` of `copies`."""

    stored: Stored
    live: Live
    placement: Placement
    copy: int = 0
    copies: int = 1

    @property
    def name(self) -> str:
        return self.stored.name


class Mismatch(Exception):
    """The parameter is there, but not as the rule has it; the text says how."""


_EXPERT = re.compile(r"(.*\.experts\.)(\d{1,9})\.")


@dataclasses.dataclass(frozen=True)
class Context:
    """What rules look at: the checkpoint's tensors, the live parameters, this rank's place."""

    tensors: Mapping[str, Stored]
    lives: Mapping[str, Live]
    topology: Topology
    config: Mapping

    @functools.cached_property
    def experts(self) -> dict[str, int]:
        """How many experts the checkpoint has under each prefix (`...experts.`)."""
        counts: dict[str, int] = {}
        for match in map(_EXPERT.match, self.tensors):
            if match:
                counts[match[1]] = max(counts.get(match[1], 0), int(match[2]) + 1)
        return counts

    def live(self, name: str, stored: Stored) -> Live:
        live = self.lives[name]
        if live.dtype == stored.dtype or widened(stored.dtype, live.dtype):
            return live
        raise Mismatch(f"'{name}' holds {live.dtype}, the checkpoint {stored.dtype}: a tensor that "
                       "was converted or requantised has no bits to bring up to date")


# (context, stored, match) -> parts, or None where the engine has no such parameter.
Rule = Callable[[Context, Stored, re.Match], list[Part] | None]


def split_rows(context: Context, stored: Stored, live: Live, parts_of: Callable[[int], Share],
               before: Callable[[int], int] = lambda _: 0,
               total: Callable[[int], int] | None = None, lead: tuple[int, ...] = ()) -> list[Part]:
    """A slice of the rows of `stored` in rows of `live`, behind `before` rows; `total`: rows of
    the whole parameter. Each is asked with a number of slices. `lead`: indices before the rows."""
    shape = stored.places
    inner = live.shape[len(lead):]
    for splits in context.topology.splits():
        share = parts_of(splits)
        if shape[0] % share.parts:
            continue
        count = shape[0] // share.parts
        rows = total(splits) if total else count
        if inner != (rows, *shape[1:]):
            continue
        start = (*lead, before(splits)) + (0,) * (len(shape) - 1)
        begin = (share.index * count,) + (0,) * (len(shape) - 1)
        placement = box(shape, begin, (count, *shape[1:]), start)
        return [Part(stored, live, placement, share.copy, share.copies)]
    raise Mismatch(f"'{live.name}' has the shape {list(live.shape)}, which is no slice of rows of "
                   f"{list(shape)} for rank {context.topology.rank} of {context.topology.size}")


def split_columns(context: Context, stored: Stored, live: Live,
                  lead: tuple[int, ...] = ()) -> list[Part]:
    """A slice of the columns: what a rank holds of a row-parallel layer."""
    shape = stored.places
    for splits in context.topology.splits():
        share = context.topology.share(splits)
        if len(shape) < 2 or shape[1] == 1:  # Biases and scales of rows are not cut.
            share = context.topology.share(1)
        elif shape[1] % splits:
            continue
        columns = shape[1] // share.parts if len(shape) > 1 else 1
        count = (shape[0], columns, *shape[2:]) if len(shape) > 1 else shape
        if live.shape[len(lead):] != count:
            continue
        begin = (0, share.index * columns, *([0] * (len(shape) - 2)))[:len(shape)]
        placement = box(shape, begin, count, (*lead, *([0] * len(shape))))
        return [Part(stored, live, placement, share.copy, share.copies)]
    raise Mismatch(f"'{live.name}' has the shape {list(live.shape)}, which is no slice of columns "
                   f"of {list(shape)} for rank {context.topology.rank} of {context.topology.size}")


def same(context: Context, stored: Stored, live: Live) -> list[Part]:
    """The whole tensor, at every rank."""
    shape = stored.places
    if live.shape != shape and not (stored_scalar(stored) and live.elements == 1):
        raise Mismatch(f"'{live.name}' has the shape {list(live.shape)}, the checkpoint's tensor "
                       f"{list(shape)}")
    if stored_scalar(stored):
        placement = Placement(0, (0,) * len(live.shape), ())
    else:
        placement = box(shape, [0] * len(shape), shape, [0] * len(shape))
    share = context.topology.share(1)
    return [Part(stored, live, placement, share.copy, share.copies)]


def stored_scalar(stored: Stored) -> bool:
    return math.prod(stored.places) == 1


def by_name(context: Context, stored: Stored, _match) -> list[Part] | None:
    """A parameter of the same name: norms, routers, and whatever the engine does not cut."""
    if stored.name not in context.lives:
        return None
    return same(context, stored, context.live(stored.name, stored))


def rows(context: Context, stored: Stored, _match) -> list[Part] | None:
    """A column-parallel layer of the same name."""
    if stored.name not in context.lives:
        return None
    live = context.live(stored.name, stored)
    if stored_scalar(stored):
        return same(context, stored, live)
    return split_rows(context, stored, live, context.topology.share)


def columns(context: Context, stored: Stored, _match) -> list[Part] | None:
    """A row-parallel layer of the same name."""
    if stored.name not in context.lives:
        return None
    live = context.live(stored.name, stored)
    if stored_scalar(stored):
        return same(context, stored, live)
    return split_columns(context, stored, live)


def fused(target: str, slots: tuple[str, ...], heads: tuple[str, ...] = ()) -> Rule:
    """Tensors `slots`, one behind the other in parameter `target`; those named in `heads` are
    key-value heads. The match has the groups prefix, slot and leaf."""

    def rule(context: Context, stored: Stored, match) -> list[Part] | None:
        prefix, slot, leaf = match["prefix"], match["slot"], match["leaf"]
        name = f"{prefix}{target}.{leaf}"
        if name not in context.lives:
            return None
        live = context.live(name, stored)
        if stored_scalar(stored):
            return _scalar_slot(context, stored, live, slots.index(slot), len(slots))
        lengths = {}
        for other in slots:
            sibling = context.tensors.get(f"{prefix}{other}.{leaf}")
            if sibling is None:
                raise Mismatch(f"'{name}' is made of '{prefix}{other}.{leaf}' too, which the "
                               "checkpoint does not have")
            lengths[other] = sibling.places[0]

        def share(other: str, splits: int) -> Share:
            if other not in heads:
                return context.topology.share(splits)
            return _heads(context, splits)

        def length(others, splits: int) -> int:
            if any(lengths[other] % share(other, splits).parts for other in others):
                return -1  # No shape has it.
            return sum(lengths[other] // share(other, splits).parts for other in others)

        return split_rows(context, stored, live, lambda splits: share(slot, splits),
                          lambda splits: length(slots[:slots.index(slot)], splits),
                          lambda splits: length(slots, splits))

    return rule


def _heads(context: Context, splits: int) -> Share:
    return context.topology.heads(splits, number_in(context.config, "num_key_value_heads"))


def _scalar_slot(context: Context, stored: Stored, live: Live, slot: int, slots: int) -> list[Part]:
    """One scale of each fused tensor. An engine that has made one scale of them has requantised."""
    if live.shape != (slots,):
        raise Mismatch(f"'{live.name}' has the shape {list(live.shape)}, not one scale for each of "
                       f"{slots} fused tensors")
    share = context.topology.share(1)
    return [Part(stored, live, Placement(0, (slot,), ()), share.copy, share.copies)]


def fused_on_disk(target: str, sections: Callable[[Mapping, int], list[tuple[int, bool]]]) -> Rule:
    """One tensor of the checkpoint that is fused already: each of its sections is cut by itself.
    `sections`: (rows, key-value heads) of each, from the configuration and all rows."""

    def rule(context: Context, stored: Stored, match) -> list[Part] | None:
        name = f"{match['prefix']}{target}.{match['leaf']}"
        if name not in context.lives:
            return None
        live = context.live(name, stored)
        shape = stored.places
        lengths = sections(context.config, shape[0])
        for splits in context.topology.splits():
            shares = [_heads(context, splits) if heads else context.topology.share(splits)
                      for _, heads in lengths]
            counts = [n // share.parts for (n, _), share in zip(lengths, shares, strict=True)]
            if live.shape == (sum(counts), *shape[1:]):
                return _sections(stored, live, [n for n, _ in lengths], counts, shares)
        raise Mismatch(f"'{name}' has the shape {list(live.shape)}, which is no slice of sections "
                       f"of {list(shape)}")

    return rule


def _sections(stored, live, lengths, counts, shares) -> list[Part]:
    shape, parts = stored.places, []
    rest = (0,) * (len(shape) - 1)
    for k, share in enumerate(shares):
        begin = sum(lengths[:k]) + share.index * counts[k]
        placement = box(shape, (begin, *rest), (counts[k], *shape[1:]), (sum(counts[:k]), *rest))
        parts.append(Part(stored, live, placement, share.copy, share.copies))
    return parts


def vocabulary(padding: int = 64) -> Rule:
    """Embeddings and heads: the vocabulary is padded, then cut; padding rows are left alone."""

    def rule(context: Context, stored: Stored, _match) -> list[Part] | None:
        if stored.name not in context.lives:
            return None
        live = context.live(stored.name, stored)
        shape = stored.places
        for splits in context.topology.splits():
            spare = live.shape[0] * splits - shape[0]
            if live.shape[1:] != shape[1:] or not 0 <= spare < padding * splits:
                continue
            share = context.topology.share(splits)
            begin = min(share.index * live.shape[0], shape[0])
            count = min(live.shape[0], shape[0] - begin)
            if count == 0:
                return []
            rest = (0,) * (len(shape) - 1)
            placement = box(shape, (begin, *rest), (count, *shape[1:]), (0, *rest))
            return [Part(stored, live, placement, share.copy, share.copies)]
        raise Mismatch(f"'{live.name}' has {live.shape[0]} rows, which is no padded slice of a "
                       f"vocabulary of {shape[0]}")

    return rule


def first_of(*rules: Rule) -> Rule:
    """The first rule whose parameter the engine has."""

    def rule(context: Context, stored: Stored, match) -> list[Part] | None:
        for one in rules:
            parts = one(context, stored, match)
            if parts is not None:
                return parts
        return None

    return rule


# Names that engines give to what they derive from `kv_b_proj`, and how it lies there by head:
# [heads, nope, rank] and [heads, rank, value].
_KEYS, _VALUES = ("w_kc", "W_UK_T"), ("w_vc", "W_UV")
DERIVED = _KEYS + _VALUES


def latent(context: Context, stored: Stored, match) -> list[Part] | None:
    """`kv_b_proj` of multi-head latent attention: column-parallel, and beside it what engines
    derive from it once, for decoding. Where that is memory of its own, it is a copy."""
    parts = rows(context, stored, match)
    if not parts or match["leaf"] != "weight":
        return parts
    (part,) = parts
    extra = []
    for name, live in context.lives.items():
        if name.startswith(match["prefix"]) and name.rsplit(".", 1)[-1] in DERIVED:
            extra += _derived(context, part, live, name.rsplit(".", 1)[-1] in _VALUES)
    if not extra:
        return parts
    if sum(other.placement.elements for other in extra) != part.placement.elements:
        raise Mismatch(f"'{part.live.name}' is derived into {[p.live.name for p in extra]}, which "
                       "do not hold all of it")
    return [dataclasses.replace(p, copy=p.copy + (p is not part) * part.copies,
                                copies=2 * part.copies) for p in (part, *extra)]


def _derived(context: Context, part: Part, live: Live, value: bool) -> list[Part]:
    nope = number_in(context.config, "qk_nope_head_dim")
    width = number_in(context.config, "v_head_dim")
    first, count, per_head = (nope, width, nope + width) if value else (0, nope, nope + width)
    weight, rank = part.live, part.live.shape[1]
    heads = weight.shape[0] // per_head
    shape = (heads, rank, count) if value else (heads, count, rank)
    if live.shape != shape or live.dtype != weight.dtype:
        raise Mismatch(f"'{live.name}' is derived from '{weight.name}' and has the shape "
                       f"{list(live.shape)} and dtype {live.dtype}, not {list(shape)}")
    row, column = (2, 1) if value else (1, 2)
    steps = (live.strides[0], live.strides[row], live.strides[column])
    begin = weight.address + first * weight.strides[0] * weight.width
    if live.address == begin and steps == (per_head * weight.strides[0], *weight.strides):
        return []  # A view of the parameter itself.
    axes = (Axis(heads, per_head * rank, 0), Axis(count, rank, row), Axis(rank, 1, column))
    placement = Placement(part.placement.source_offset + first * rank, (0, 0, 0), axes)
    return [Part(part.stored, live, placement, part.copy, part.copies)]
