# SPDX-License-Identifier: Apache-2.0
"""Cover: what of an engine no update would reach.

Whatever an engine computes with and nothing is placed in keeps the values that it had, and no proof
looks at it. So every element of every parameter is of the checkpoint, or lies in one that is, or is
named by a pattern of what does not depend on a checkpoint; so is every buffer. The rows that pad a
vocabulary are the one exception: no token has them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from .placement import Live, live_of
from .rules import Part

EMBEDDING = re.compile(r"(.*\.)?embed_tokens\.weight")
HEAD = re.compile(r"(.*\.)?lm_head\.weight")
_VOCABULARY = re.compile(
    r"(.*\.)?(embed_tokens\.weight|(lm_head|shared_head\.head)\.(weight|bias))")
# Scales of attention that vLLM registers as buffers of ones, and what else it makes them of.
_SCALES = re.compile(r".*\._(?:[qkv]|prob)_scale")
_MADE_OF = re.compile(r".*\.(?:[qkv]|kv|prob)(?:_proj\.output)?_scale")
LEFT = "an update would leave it as it is"


def unreached(lives: Mapping[str, Live], parts: Sequence[Part], bound: Sequence[Part],
              probed: Collection[str], allowed: Iterable[re.Pattern]) -> dict[str, str]:
    """Parameters that would keep values, wholly or in part: name -> why. `bound`: the parts and
    those of other models. What was placed by probing has been looked at already."""
    allowed, covered = list(allowed), _covered(parts)
    looked_at = {part.live.name for part in parts if part.name in probed}
    looked_at |= {part.live.name for part in parts if _VOCABULARY.fullmatch(part.name)}
    missing = {}
    for name, live in lives.items():
        if live.elements == 0 or any(pattern.fullmatch(name) for pattern in allowed):
            continue
        if name in covered:
            rest = live.elements - covered[name]
            if rest and name not in looked_at:
                missing[name] = f"{rest} of its {live.elements} elements would stay as they are"
        elif not _inside(live, bound):
            missing[name] = LEFT
    return missing


def shared(lives: Mapping[str, Live], parts: Sequence[Part],
           allowed: Iterable[re.Pattern]) -> list[str]:
    """Of parameters that `unreached` finds nothing wrong with, those that are no parts: they lie in
    what is bound, and must go on to."""
    allowed, placed = list(allowed), {part.live.name for part in parts}
    return [name for name, live in lives.items()
            if live.elements and name not in placed and
            not any(pattern.fullmatch(name) for pattern in allowed)]


def fixed_scales(names: Iterable[str]) -> list[re.Pattern]:
    """Patterns of the scales that engines make up where the checkpoint, with these `names`, has
    none."""
    return [] if any(_MADE_OF.fullmatch(name) for name in names) else [_SCALES]


def _covered(parts: Iterable[Part]) -> dict[str, int]:
    """How many elements of each parameter are placed; two names of one place count once."""
    placed: dict[str, dict] = {}
    for part in parts:
        key = part.placement.start, tuple((a.count, a.dim, a.step) for a in part.placement.axes)
        placed.setdefault(part.live.name, {})[key] = part.placement.elements
    return {name: sum(counts.values()) for name, counts in placed.items()}


def _inside(live: Live, parts: Iterable[Part]) -> bool:
    """Whether it is another name of a bound parameter, or a view of one that has no gaps."""
    places = {part.live.where(): part.live for part in parts}
    if live.where() in places:
        return True
    for bound in places.values():
        if bound.extent == bound.elements * bound.width and (
                bound.address <= live.address and
                live.address + live.extent <= bound.address + bound.extent):
            return True
    return False


def stale_buffers(model: object, lives: Mapping[str, Live], bound: Sequence[Part],
                  allowed: Iterable[re.Pattern]) -> dict[str, str]:
    """Buffers of a module that are neither bound nor allowed: engines keep there what they derive
    from weights, and nothing derives it anew."""
    allowed, missing = list(allowed), {}
    for name, tensor in _buffers(model):
        if name in lives or tensor.numel() == 0 or any(p.fullmatch(name) for p in allowed):
            continue
        if tensor.device.type == "meta" or not _inside(live_of(name, tensor), bound):
            missing[name] = f"{LEFT}; if it depends on no weights, allow it by a 'static' pattern"
    return missing


def _buffers(model: object) -> Iterator[tuple[str, object]]:
    return iter(()) if isinstance(model, Mapping) else model.named_buffers()
