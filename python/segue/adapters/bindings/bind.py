# SPDX-License-Identifier: Apache-2.0
"""From a plan to a receiver: views in bytes, and memory for what the engine does not load.

A part is bound as the bytes of its whole parameter under a view. The receiver keeps a reference to
them; whether the engine has moved or replaced a parameter since is for `Shadows.moved` to find out,
since bytes that nobody uses any more would pass every proof.
"""

from __future__ import annotations

import ctypes

from ... import View
from .placement import Live, byte_view
from .plan import BindingPlan, lives_of


class Shadows:
    """What was bound: the places of all parameters, and the memory of tensors that the engine does
    not load."""

    def __init__(self, plan: BindingPlan):
        bound = {part.live.name for part in plan.parts}
        self._places = {name: plan.lives[name].where() for name in bound}
        self.buffers: dict[str, bytearray] = {
            stored.name: bytearray(stored.read()) for stored in plan.shadows}

    def moved(self, model: object) -> list[str]:
        """Parameters that lie elsewhere than when they were bound, or are gone."""
        now = lives_of(model, self._places)
        return sorted(name for name, place in self._places.items()
                      if name not in now or now[name].where() != place)


def bind_plan(receiver, plan: BindingPlan) -> Shadows:
    """Binds all parts of `plan`, and shadows of what the engine does not load."""
    shadows = Shadows(plan)
    memories: dict[str, object] = {}
    for part in plan.parts:
        live = part.live
        if live.name not in memories:
            memories[live.name] = _bytes_of(live)
        source, target, axes = byte_view(live, part.placement, part.stored.dtype)
        receiver.bind(part.name, memories[live.name], View(source, target, axes),
                      dtype=part.stored.dtype, shape=part.stored.shape, copy=part.copy,
                      copies=part.copies)
    for stored in plan.shadows:
        receiver.bind(stored.name, shadows.buffers[stored.name], dtype=stored.dtype,
                      shape=stored.shape)
    return shadows



def _bytes_of(live: Live):
    memory = (ctypes.c_char * live.extent).from_address(live.address)
    memory.owner = live.tensor  # The storage lives as long as this view of it.
    return memory
