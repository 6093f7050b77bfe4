# SPDX-License-Identifier: Apache-2.0
"""Partitions: what one rank holds of each tensor, as boxes of the whole.

A box is an offset and a size for each dimension, in torch's elements. DTensors say themselves where
their local tensor lies; a trainer with a way of its own to cut tensors says it with `Partition`.
What is not certain is refused: a box in the wrong place would be published as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from ..errors import InvalidArgumentError, UnsupportedError
from ..tensors import TORCH_DTYPES, TensorSpec, is_torch

Box = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Partition:
    """The part of a tensor that lies on this rank: `tensor` is the box of the whole that begins at
    `offset` (one number for each dimension, in elements). `shape`: of the whole."""

    tensor: torch.Tensor
    shape: tuple[int, ...]
    offset: tuple[int, ...]


@dataclass(frozen=True)
class Held:
    """What a rank holds of the tensor `name`: `local`, which is the box at `offset` of a tensor of
    `shape`. `source`: what the trainer gave, whose writes torch counts."""

    name: str
    local: torch.Tensor
    shape: tuple[int, ...]
    offset: tuple[int, ...]
    source: torch.Tensor

    @property
    def dtype(self) -> str:
        """torch's name of it."""
        return str(self.local.dtype).removeprefix("torch.")

    @property
    def size(self) -> tuple[int, ...]:
        """Of the box."""
        return tuple(self.local.shape)

    @property
    def whole(self) -> bool:
        """Whether the box is the whole tensor."""
        return self.size == self.shape

    def declaration(self) -> list:
        """For the other ranks: name, dtype, shape, offset and size."""
        return [self.name, self.dtype, list(self.shape), list(self.offset), list(self.size)]

    def write_counts(self) -> tuple[int, ...]:
        """What changes when torch writes to it in place. Writes that torch does not count (through
        `.data`, or by others) are not seen."""
        return tuple(0 if tensor.is_inference() else tensor._version
                     for tensor in (self.source, self.local))


def hold_all(tensors: torch.nn.Module | Mapping | Iterable) -> dict[str, Held]:
    """Of a module (its state_dict), a mapping, or pairs of name and tensor. Partitions without
    elements are left out: nobody needs to ask for them. InvalidArgumentError, naming the tensor,
    for what cannot be published."""
    if isinstance(tensors, torch.nn.Module):
        tensors = tensors.state_dict()
    held = {}
    for name, value in tensors.items() if hasattr(tensors, "items") else tensors:
        if name in held:
            raise InvalidArgumentError(f"tensor '{name}' is there twice")
        one = hold(name, value)
        if one is not None and (one.whole or math.prod(one.size) != 0):
            held[name] = one
    return held


def hold(name: str, value: torch.Tensor | Partition) -> Held | None:
    """None where this rank holds nothing of it."""
    if not isinstance(name, str):
        raise InvalidArgumentError(f"a tensor's name is a string, not {name!r}")
    if isinstance(value, Partition):
        _check_partition(name, value)
        local, shape, offset = value.tensor, tuple(value.shape), tuple(value.offset)
        return Held(name, _plain(name, local), shape, offset, local)
    if not is_torch(value):
        _refuse(name, f"it is a {type(value).__name__}; give torch tensors or a Partition of one")
    if _is_dtensor(value):
        return _hold_dtensor(name, value)
    return Held(name, _plain(name, value), tuple(value.shape), (0,) * value.dim(), value)


def spec_of(dtype: str, shape: tuple[int, ...]) -> TensorSpec:
    """A tensor of torch's dtype and shape in safetensors' words."""
    name = TORCH_DTYPES[dtype]
    if name == "F4":  # Two values a byte: safetensors counts values.
        shape = (*shape[:-1], 2 * shape[-1])
    return TensorSpec(name, tuple(shape))


def _refuse(name, why):
    raise InvalidArgumentError(f"tensor '{name}': {why}")


def _plain(name, tensor):
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        _refuse(name, "it is not dense (sparse, quantized or without memory)")
    if tensor.is_conj() or tensor.is_neg():
        _refuse(name, "its bytes are not its values (conjugate or negative view); resolve it first")
    if str(tensor.dtype).removeprefix("torch.") not in TORCH_DTYPES:
        raise UnsupportedError(f"tensor '{name}': safetensors has no dtype for {tensor.dtype}")
    return tensor.detach()


def _check_partition(name, value):
    tensor = value.tensor
    if not is_torch(tensor) or _is_dtensor(tensor):
        _refuse(name, f"a Partition holds a plain torch tensor, not a {type(tensor).__name__}")
    if not len(value.shape) == len(value.offset) == tensor.dim():
        _refuse(name, f"its partition has {tensor.dim()} dimensions, its shape "
                f"{list(value.shape)}, its offset {list(value.offset)}")
    if any(not 0 <= begin <= begin + size <= end
           for begin, size, end in zip(value.offset, tensor.shape, value.shape)):
        _refuse(name, f"a partition of {list(tensor.shape)} at {list(value.offset)} is not within "
                f"{list(value.shape)}")


# --- DTensor --------------------------------------------------------------------------------------


def _is_dtensor(value):
    try:
        from torch.distributed.tensor import DTensor
    except ImportError:
        return False
    return isinstance(value, DTensor)


def _hold_dtensor(name, value):
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    mesh, shape = value.device_mesh, tuple(value.shape)
    _check_placements(name, value)
    if mesh.get_coordinate() is None:
        return None  # Other ranks have it.
    with torch.no_grad():
        local = value.detach().to_local()
    size, offset = compute_local_shape_and_global_offset(shape, mesh, value.placements)
    if tuple(size) != tuple(local.shape):
        _refuse(name, f"its local tensor is {list(local.shape)} where its placements "
                f"{value.placements} give {list(size)}")
    if 0 in shape:
        local = local.new_empty(shape)  # Everybody has all of nothing.
    if 0 in local.shape:
        offset = (0,) * len(shape)
    return Held(name, _plain(name, local), shape, tuple(int(begin) for begin in offset), value)


def _check_placements(name, value):
    later = [1] * value.dim()  # Into how many pieces later dimensions of the mesh cut each one.
    for number in reversed(range(len(value.placements))):
        placement, count = value.placements[number], value.device_mesh.size(number)
        kind = type(placement).__name__
        if kind == "Replicate":
            continue
        if kind not in ("Shard", "_StridedShard"):
            _refuse(name, f"its placement {placement} holds no final values; redistribute it first")
        if kind == "_StridedShard":
            even = value.shape[placement.dim] % (count * later[placement.dim]) == 0
            if placement.split_factor != later[placement.dim] or not even:
                raise UnsupportedError(
                    f"tensor '{name}': {placement} of {value.shape[placement.dim]} over {count} "
                    f"ranks is not one piece; redistribute it, or give a Partition")
        later[placement.dim] *= count
