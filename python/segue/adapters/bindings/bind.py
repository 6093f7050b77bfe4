# SPDX-License-Identifier: Apache-2.0
"""From a plan to a receiver: views in bytes, and memory for what the engine does not load.

A part is bound as the bytes of its whole parameter under a view. The receiver keeps the memory, and
looks before each update whether the tensor still lies there; whether the engine has replaced the
tensor itself is for `Shadows.moved` to find out, since bytes that nobody uses any more would pass
every proof.
"""

from __future__ import annotations

from ... import InvalidArgumentError, View
from ...tensors import Described
from .placement import Live, byte_view, live_of
from .plan import BindingPlan, aliases_of, lives_of


class Shadows:
    """What was bound: the places of all parameters, and the memory of tensors that the engine does
    not load, on the device that its parameters are on. `model`: what the plan is of."""

    def __init__(self, plan: BindingPlan, model: object):
        bound = {part.live.name for part in plan.parts}
        self._places = {name: plan.lives[name].where() for name in bound}
        self._aliases = {name: plan.lives[name].where() for name in plan.shared}
        self._aliases |= {name: live_of(name, tensor).where()
                          for name, tensor in aliases_of(model) if name not in plan.lives}
        device = next((part.live.device for part in plan.parts), "")
        self.buffers: dict[str, object] = {
            stored.name: _on(device, bytearray(stored.read())) for stored in plan.shadows}

    def moved(self, model: object) -> list[str]:
        """Parameters that lie elsewhere than when they were bound, or are gone; and other names of
        theirs that are copies now. What an engine makes of them in another dtype is no copy."""
        now = lives_of(model, {*self._places, *self._aliases})
        places = {name: live.where() for name, live in now.items()}
        moved = [name for name, place in self._places.items() if places.get(name) != place]
        places |= {name: live_of(name, tensor).where() for name, tensor in aliases_of(model)
                   if name in self._aliases and name not in places}
        return sorted(moved + [name for name, place in self._aliases.items()
                               if name in places and _is_copy(place, places[name])])


def _is_copy(before: tuple, now: tuple) -> bool:
    """Of two places by `Live.where`."""
    return before != now and before[2:4] == now[2:4]


def _on(device: str, data: bytearray) -> object:
    if not device:
        return data
    import torch  # Only an engine on torch has parameters there.

    return torch.frombuffer(data, dtype=torch.uint8).to(device) if data else torch.empty(
        0, dtype=torch.uint8, device=device)


def bind_plan(receiver, plan: BindingPlan, model: object) -> Shadows:
    """Binds all parts of `plan`, which is of `model`, and shadows of what the engine does not load.
    InvalidArgumentError for a parameter that is read only."""
    shadows = Shadows(plan, model)
    memories: dict[str, Described] = {}
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


def _bytes_of(live: Live) -> Described:
    if not live.writable:
        raise InvalidArgumentError(f"parameter '{live.name}': its memory is read only")
    tensor, extent = live.tensor, live.extent

    def where():
        if not hasattr(tensor, "data_ptr"):
            return tensor.__array_interface__["data"][0], extent
        return (tensor.data_ptr() if tensor.element_size() == live.width else 0), extent

    return Described(live.name, "U8", (extent,), live.address, extent, True,
                     (tensor, live.keep), where, live.device)
