# SPDX-License-Identifier: Apache-2.0
"""Weights in a GPU's memory that belong to another process (CUDA IPC): an engine shares its
tensors, a receiver beside it binds them and updates them in their place.

    shares = {name: segue.share_gpu_memory(parameter)       # In the engine; send them, say pickled.
              for name, parameter in model.named_parameters()}

    for name, share in shares.items():                      # In the process beside it.
        receiver.bind(name, segue.map_gpu_memory(share))

The engine keeps its tensors alive and where they are while they are mapped. docs/cuda.md, "Weights
of another process", says what both must keep to; the gate between the two is theirs
(`close_gate`, `open_gate` of the receiver).
"""

from dataclasses import dataclass
from typing import Any

from segue import _core
from segue.errors import InvalidArgumentError
from segue.tensors import Described, describe_anywhere


@dataclass(frozen=True)
class GpuShare:
    """A tensor in a GPU's memory, as another process of this machine can map it. Plain values:
    pickles, and holds nothing alive. `device`: as this process counts."""

    handle: bytes
    offset: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    device: str


class MappedGpuTensor:
    """A tensor of another process, mapped while this lives. Receiver.bind() takes it."""

    def __init__(self, share: GpuShare, device: str) -> None:
        self.share, self.device = share, device
        self._mapping = _core.map_device_memory(device, share.handle, share.offset, share.nbytes)

    def __segue_describe__(self, name: str) -> Described:
        """As segue.tensors.describe_anywhere() gives it."""
        mapping = self._mapping
        return Described(name, self.share.dtype, self.share.shape, mapping.address, mapping.nbytes,
                         True, (self,), lambda: (mapping.address, mapping.nbytes), self.device)


def share_gpu_memory(tensor: Any) -> GpuShare:
    """A GpuShare of a tensor of torch or DLPack in a CUDA GPU's memory. InvalidArgumentError for
    one that is elsewhere or empty, UnsupportedError for memory that cannot be shared in this way
    (torch's expandable segments)."""
    found = describe_anywhere("tensor", tensor)
    if not found.device:
        raise InvalidArgumentError("the tensor is in the CPU's memory; share one of a CUDA GPU")
    if found.nbytes == 0:
        raise InvalidArgumentError("the tensor is empty; there is nothing to share")
    if found.copies():
        raise InvalidArgumentError("its __dlpack__ gives a copy each time; share the tensor that "
                                   "owns the memory")
    handle, offset, size = _core.share_device_memory(found.device, found.address, found.nbytes)
    return GpuShare(handle, offset, size, found.dtype, found.shape, found.device)


def map_gpu_memory(share: GpuShare, device: str | None = None) -> MappedGpuTensor:
    """The shared tensor in this process, on `device` ("cuda:1", where this process counts its
    GPUs in another order than the one that shared it). InvalidArgumentError for a share that is
    of another GPU, or none."""
    if not isinstance(share, GpuShare):
        raise InvalidArgumentError(f"a GpuShare is needed, not a {type(share).__name__}")
    return MappedGpuTensor(share, device or share.device)
