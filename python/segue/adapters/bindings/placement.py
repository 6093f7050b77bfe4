# SPDX-License-Identifier: Apache-2.0
"""Placements: where the elements of a checkpoint tensor lie in a live parameter.

A table speaks of rows, columns and experts of a parameter, not of bytes: the parameter may be
transposed or padded in memory. So a placement gives indices, and the parameter's own strides make
bytes of them. Neither torch nor numpy is needed here.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable, Sequence

from ... import Error, UnsupportedError
from ...tensors import NUMPY_DTYPES, TORCH_DTYPES

# Bits of a value of each of safetensors' dtypes; types that share a byte count two values as one.
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}


def dtype_bits(dtype: str) -> int:
    """Bits of one value of a safetensors dtype: 16 for "BF16", 8 for "F8_E4M3"."""
    if dtype not in _BITS:
        raise UnsupportedError(f"the dtype '{dtype}' is not known")
    return _BITS[dtype]


@dataclasses.dataclass(frozen=True)
class Axis:
    """`count` steps: each `source_stride` elements further in the checkpoint's tensor, and `step`
    indices further in dimension `dim` of the parameter."""

    count: int
    source_stride: int
    dim: int
    step: int = 1


@dataclasses.dataclass(frozen=True)
class Placement:
    """Element `source_offset` + sum(i[k] * source_stride[k]) lies at index `start` + i[k] * step[k]
    (in dimension dim[k]) of the parameter, for all 0 <= i[k] < count[k].

    `flat`: the one index counts through all elements of the parameter, which is contiguous.
    """

    source_offset: int
    start: tuple[int, ...]
    axes: tuple[Axis, ...]
    flat: bool = False

    @property
    def elements(self) -> int:
        return math.prod(axis.count for axis in self.axes)


@dataclasses.dataclass(frozen=True)
class Live:
    """A live parameter: shape, strides and width in elements and bytes; `address` of element 0.
    `device`: in whose memory it is, "cuda:0" or another, or "" for this process's own; `keep`: what
    the memory lives with, beside the tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    width: int
    address: int
    tensor: object = dataclasses.field(compare=False, repr=False, default=None)
    keep: object = dataclasses.field(compare=False, repr=False, default=None)
    device: str = ""
    writable: bool = True

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def extent(self) -> int:
        """Bytes from the first element to behind the last one, gaps included."""
        if self.elements == 0:
            return 0
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (reach + 1) * self.width

    @property
    def contiguous(self) -> bool:
        expected = 1
        for count, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if count != 1 and stride != expected:
                return False
            expected *= count
        return True

    def where(self) -> tuple:
        """What changes when the parameter is moved, resized or replaced."""
        return self.device, self.address, self.dtype, self.shape, self.strides


def live_of(name: str, tensor: object) -> Live:
    """The parameter `tensor` (torch or numpy) of this process. UnsupportedError for one that is
    not plain memory of the CPU or of a CUDA GPU."""
    try:
        if hasattr(tensor, "__array_interface__") and not hasattr(tensor, "data_ptr"):
            live = _live_of_numpy(name, tensor)
        else:
            live = _live_of_torch(name, tensor)
    except Error:
        raise
    except Exception as error:  # Of a tensor that has no bytes, torch says so in many ways.
        raise UnsupportedError(f"parameter '{name}' is a {type(tensor).__name__} that tells "
                               f"nothing of its memory: {error}") from error
    if live.elements and not live.address:
        raise UnsupportedError(f"parameter '{name}' has no memory")
    return live


def _live_of_torch(name: str, tensor) -> Live:
    device = str(tensor.device)
    if device != "cpu" and not device.startswith("cuda:"):
        raise UnsupportedError(f"parameter '{name}' is on the device '{device}': only weights in "
                               "the memory of the CPU or of a CUDA GPU can be bound")
    if str(tensor.layout) != "torch.strided":
        raise UnsupportedError(f"parameter '{name}' is not dense: its layout is {tensor.layout}")
    dtype = TORCH_DTYPES.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None:
        raise UnsupportedError(f"parameter '{name}' has the dtype {tensor.dtype}")
    # The storage is kept too: `tensor.data = other` must not free what is bound.
    return Live(name, dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.element_size(),
                tensor.data_ptr(), tensor, tensor.untyped_storage(),
                "" if device == "cpu" else device)


def _live_of_numpy(name: str, array) -> Live:
    width = array.dtype.itemsize
    dtype = NUMPY_DTYPES.get(array.dtype.name)
    if dtype is None or any(stride % width or stride < 0 for stride in array.strides):
        raise UnsupportedError(f"parameter '{name}' is an array of {array.dtype} that has no view")
    return Live(name, dtype, array.shape, tuple(stride // width for stride in array.strides), width,
                array.__array_interface__["data"][0], array,
                writable=bool(array.flags.writeable))


def widened(dtype: str, live_dtype: str) -> bool:
    """Whether an engine that holds `live_dtype` can hold the bits of `dtype` as they are: F32 made
    of BF16 has them in its upper half, and zeros in the lower one."""
    return (dtype, live_dtype) == ("BF16", "F32") and sys.byteorder == "little"


def byte_view(live: Live, placement: Placement,
              dtype: str) -> tuple[int, int, list[tuple[int, int, int]]]:
    """`placement` of a tensor of `dtype` in `live` as segue.View takes it: source offset
    (elements), target offset (bytes), axes of (count, source stride, target stride)."""
    strides = (1,) if placement.flat else live.strides
    if placement.flat and not live.contiguous:
        raise UnsupportedError(f"parameter '{live.name}' is not contiguous")
    offset = sum(i * s for i, s in zip(placement.start, strides, strict=True)) * live.width
    if widened(dtype, live.dtype):
        offset += 2
    axes = [(axis.count, axis.source_stride, axis.step * strides[axis.dim] * live.width)
            for axis in placement.axes if axis.count != 1]
    return placement.source_offset, offset, _joined(axes)


def _joined(axes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The same steps with as few axes as possible, long steps first."""
    joined: list[tuple[int, int, int]] = []
    for count, source, target in sorted(axes, key=lambda axis: axis[1], reverse=True):
        if joined and joined[-1][1:] == (count * source, count * target):
            joined[-1] = (joined[-1][0] * count, source, target)
        else:
            joined.append((count, source, target))
    return joined


def box(shape: Sequence[int], begin: Sequence[int], count: Sequence[int], start: Sequence[int],
        dims: Iterable[int] | None = None) -> Placement:
    """The box [begin, begin + count) of a tensor of `shape`, laid at index `start`: dimension k of
    the tensor runs along dimension dims[k] of the parameter (by default the last ones, in order).
    """
    if dims is None:
        dims = range(len(start) - len(shape), len(start))
    stride, strides = 1, []
    for size in reversed(shape):
        strides.insert(0, stride)
        stride *= size
    axes = tuple(Axis(n, s, d) for n, s, d in zip(count, strides, dims, strict=True))
    return Placement(sum(b * s for b, s in zip(begin, strides, strict=True)), tuple(start), axes)


def blocked(rows: int, columns: int, source_offset: int, row_stride: int,
            column_stride: int) -> list[Placement]:
    """Scales of one byte in tiles of 128 rows x 4 columns (segue/view.h, BlockedScaleViews), of a
    matrix that lies in the checkpoint's tensor with these strides. Up to six parts, since the last
    tiles may be cut."""
    tiles = -(-columns // 4)
    parts = []
    for row, row_axes in _blocked_rows(rows, tiles, row_stride):
        for column, column_axes in _blocked_columns(columns, column_stride):
            start = row[1] + column[1]
            offset = source_offset + row[0] * row_stride + column[0] * column_stride
            parts.append(Placement(offset, (start,), tuple(row_axes + column_axes), flat=True))
    return parts


def _blocked_rows(rows, tiles, stride):
    """((first row, its place), axes) of: whole tiles, whole groups of 32 rows, the rest."""
    whole, rest = divmod(rows, 128)
    groups, single = divmod(rest, 32)
    inner = [Axis(32, stride, 0, 16)]
    if whole:
        yield (0, 0), [
            Axis(whole, 128 * stride, 0, tiles * 512), Axis(4, 32 * stride, 0, 4), *inner]
    if groups:
        yield (whole * 128, whole * tiles * 512), [Axis(groups, 32 * stride, 0, 4), *inner]
    if single:
        place = whole * tiles * 512 + groups * 4
        yield (whole * 128 + groups * 32, place), [Axis(single, stride, 0, 16)]


def _blocked_columns(columns, stride):
    whole, rest = divmod(columns, 4)
    if whole:
        yield (0, 0), [Axis(whole, 4 * stride, 0, 512), Axis(4, stride, 0, 1)]
    if rest:
        yield (whole * 4, whole * 512), [Axis(rest, stride, 0, 1)]
