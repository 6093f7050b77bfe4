# SPDX-License-Identifier: Apache-2.0
"""Verifying: which placements of a plan hold the bytes that the checkpoint has.

Asked when weights are no version under a plan: a parameter that an engine has permuted or
requantised, or a table that is wrong for this release, is told by name. It is a question about one
checkpoint; weights that are a later version differ from it nearly everywhere.
"""

from __future__ import annotations

from .elements import memory_of, need_numpy, numpy, on_host
from .placement import byte_view
from .plan import BindingPlan
from .rules import Part


def differing(plan: BindingPlan) -> list[str]:
    """Names of tensors of which some part does not hold the checkpoint's bytes."""
    need_numpy()
    names: dict[str, None] = {}
    for part in plan.parts:
        if part.name not in names and not _holds(part):
            names[part.name] = None
    return list(names)


def _holds(part: Part) -> bool:
    stored, live = part.stored, on_host(part.live)
    source, target, axes = byte_view(live, part.placement, stored.dtype)
    dtype, shape = numpy.dtype(f"u{stored.width}"), [count for count, _, _ in axes]
    held = numpy.ndarray(shape, dtype, memory_of(live), target, [stride for _, _, stride in axes])
    wanted = numpy.ndarray(shape, dtype, stored.read(), source * stored.width,
                           [stride * stored.width for _, stride, _ in axes])
    return numpy.array_equal(held, wanted)
