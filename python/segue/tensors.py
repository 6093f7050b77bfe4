# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch, numpy (with ml_dtypes), DLPack and the buffer protocol, seen as what Segue
works on: a name, a dtype in safetensors' words, a shape and the bytes in memory.

Nothing is ever copied or converted: a tensor whose bytes do not lie in the memory of this process
or of a CUDA GPU, one after the other, is refused with a sentence. Neither torch nor numpy is
imported here; what a tensor belongs to is told by its type.
"""

import ctypes
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from segue import _core
from segue.dlpack import Exported
from segue.errors import Error, InvalidArgumentError, UnsupportedError, told

# torch dtype (its name behind "torch.") -> safetensors.
TORCH_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16",
    "uint32": "U32", "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16",
    "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float4_e2m1fn_x2": "F4",
}
# numpy dtype's name, those of ml_dtypes among them -> safetensors. Types of 4 and 6 bits are not
# here: ml_dtypes keeps each value in a byte of its own, which is another layout.
NUMPY_DTYPES = {
    **{name: dtype for name, dtype in TORCH_DTYPES.items() if dtype != "F4"},
    "float16": "F16",
}
# (code, bits) of DLPack 1.1, one lane.
DLPACK_DTYPES = {
    (0, 8): "I8", (0, 16): "I16", (0, 32): "I32", (0, 64): "I64", (1, 8): "U8", (1, 16): "U16",
    (1, 32): "U32", (1, 64): "U64", (2, 16): "F16", (2, 32): "F32", (2, 64): "F64",
    (4, 16): "BF16", (5, 64): "C64", (6, 8): "BOOL", (10, 8): "F8_E4M3", (11, 8): "F8_E4M3FNUZ",
    (12, 8): "F8_E5M2", (13, 8): "F8_E5M2FNUZ", (14, 8): "F8_E8M0",
}
# Buffer protocol's format -> safetensors; "l" and "L" by their size.
BUFFER_DTYPES = {
    "?": "BOOL", "b": "I8", "B": "U8", "c": "U8", "h": "I16", "H": "U16", "i": "I32", "I": "U32",
    "q": "I64", "Q": "U64", "e": "F16", "f": "F32", "d": "F64",
    "l": f"I{ctypes.sizeof(ctypes.c_long) * 8}", "L": f"U{ctypes.sizeof(ctypes.c_ulong) * 8}",
}


@runtime_checkable
class Module(Protocol):
    """A module of torch, whose tensors are those of its `state_dict()`."""

    def state_dict(self) -> Mapping[str, Any]:
        """Names and tensors, which share the module's memory."""

    def named_parameters(self) -> Iterable[tuple[str, Any]]:
        """Here to tell a module from what else has a `state_dict()`, an optimizer say."""


Tensors = Mapping[str, Any] | Iterable[tuple[str, Any]] | Module
"""What publishers take."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that another owner has: only what it is. Stands in a publisher's `base`.
    InvalidArgumentError for what no tensor can be."""

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self):
        if not isinstance(self.dtype, str):
            raise InvalidArgumentError(f"a dtype is a word of safetensors, not {self.dtype!r}")
        try:
            shape = tuple(operator.index(count) for count in self.shape)
        except TypeError:
            raise InvalidArgumentError(
                f"a shape is a tuple of numbers, not {self.shape!r}") from None
        if isinstance(self.shape, str) or not all(0 <= count < 1 << 63 for count in shape):
            raise InvalidArgumentError(f"no tensor has the shape {self.shape!r}")
        object.__setattr__(self, "shape", shape)


@dataclass(frozen=True)
class Described:
    """A tensor in memory. `keep`: what must live as long as the bytes are used; `where`: asks the
    tensor anew for (address, bytes), to find out whether it still lies there; `device`: in whose
    memory it is, "cuda:0" or another, or "" for this process's own; `writes`: how many torch has
    counted, 0 where nobody counts; `copies`: asks whether each look at the tensor gives a copy in
    memory of its own, which `keep` holds: good to read, and nothing to write to."""

    name: str
    dtype: str
    shape: tuple
    address: int
    nbytes: int
    writable: bool
    keep: tuple
    where: Callable[[], tuple[int, int]]
    device: str = ""
    writes: Callable[[], int] = lambda: 0
    copies: Callable[[], bool] = lambda: False

    def state(self) -> tuple[int, ...]:
        """What changes when the memory is replaced, or written to by what counts its writes."""
        return (*self.where(), self.writes())

    def source(self) -> tuple[str, str, tuple[int, ...], int, int]:
        """As the module's C++ part takes it."""
        return (self.name, self.dtype, self.shape, self.address, self.nbytes)


def describe_anywhere(name, tensor):
    """What `tensor` is and where it lies, in the memory of this process or of a CUDA GPU.
    InvalidArgumentError, naming it, for one that is not plain, contiguous memory of either;
    UnsupportedError for a dtype without a name in safetensors."""
    if not isinstance(name, str):
        raise InvalidArgumentError(f"a tensor's name is a string, not {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"a tensor's name is text, not {name!r}") from None
    if isinstance(tensor, Described):
        return tensor
    try:
        found = _describe(name, tensor)
    except Error:
        raise
    except Exception as error:  # Of a tensor that has no bytes, torch says so in many ways.
        raise InvalidArgumentError(f"tensor '{name}': it is a {type(tensor).__name__} that tells "
                                   f"nothing of its memory: {told(error)}") from error
    if found.nbytes and not found.address:
        _refuse(name, "it has no memory, where its values would be")
    return found


def _describe(name, tensor):
    if hasattr(type(tensor), "__segue_describe__"):  # gpu_memory.py
        return tensor.__segue_describe__(name)
    if is_torch(tensor):
        return _describe_torch(name, tensor)
    if is_numpy(tensor):
        return _describe_numpy(name, tensor)
    if isinstance(tensor, _core.SharedTensor):
        return _describe_shared(name, tensor)
    if hasattr(tensor, "__dlpack__"):
        return _describe_dlpack(name, tensor)
    return _describe_buffer(name, tensor)


def pairs_of(tensors: Tensors) -> Iterator[tuple[str, Any]]:
    """Of a module (its state_dict()), a mapping, or pairs of name and tensor."""
    if isinstance(tensors, (str, bytes)):
        raise InvalidArgumentError("tensors are a mapping or pairs (name, tensor), not a string")
    if not isinstance(tensors, Mapping) and isinstance(tensors, Module):
        tensors = tensors.state_dict()
    try:
        pairs = iter(tensors.items() if hasattr(tensors, "items") else tensors)
    except TypeError:
        raise InvalidArgumentError(
            "tensors are a mapping or pairs (name, tensor), or a module of torch, not a "
            f"{type(tensors).__name__}") from None
    for pair in pairs:
        try:
            name, tensor = pair
        except (TypeError, ValueError):
            raise InvalidArgumentError(
                "tensors are a mapping or pairs (name, tensor); there was "
                f"{type(pair).__name__}") from None
        yield name, tensor


def describe_all(tensors: Tensors) -> list[Described]:
    """Of a module, a mapping, or of pairs of name and tensor, in memory of this process or of a
    CUDA GPU; all are alive at once."""
    described = [describe_anywhere(name, tensor) for name, tensor in pairs_of(tensors)]
    if not described and isinstance(tensors, Iterator):
        raise InvalidArgumentError("there is no tensor: the iterator was used before")
    return described


def _refuse(name, why):
    raise InvalidArgumentError(f"tensor '{name}': {why}")


def _dtype(name, table, key, what):
    dtype = table.get(key)
    if dtype is None:
        raise UnsupportedError(f"tensor '{name}': safetensors has no dtype for {what}")
    return dtype


# --- torch ----------------------------------------------------------------------------------------


def is_torch(value):
    """Whether it is a tensor of torch, a parameter or another subclass."""
    return any(base.__module__ == "torch" and base.__name__ == "Tensor"
               for base in type(value).__mro__)


def is_numpy(value):
    """Whether it is an array of numpy."""
    return any(base.__module__ == "numpy" and base.__name__ in ("ndarray", "generic")
               for base in type(value).__mro__)


def _check_torch(name, tensor):
    layout = str(tensor.layout)
    if layout != "torch.strided":
        _refuse(name, f"it is {layout}; give a dense tensor")
    if tensor.device.type not in ("cpu", "cuda"):
        _refuse(name, f"it is on device '{tensor.device}'; give one in the memory of the CPU or "
                "of a CUDA GPU")
    if type(tensor).__torch_dispatch__ is not _torch_class(tensor).__torch_dispatch__:
        _refuse(name, f"it is a {type(tensor).__name__}, which holds no bytes of its own; give the "
                "local tensor")
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        _refuse(name, "its bytes are not its values (quantized, conjugate or negative view); "
                "resolve it first")
    if not tensor.is_contiguous():
        _refuse(name, f"it is not contiguous (shape {list(tensor.shape)}, strides "
                f"{list(tensor.stride())}); Segue does not copy")


def _torch_class(tensor):
    return next(base for base in type(tensor).__mro__
                if base.__module__ == "torch" and base.__name__ == "Tensor")


def _describe_torch(name, tensor):
    _check_torch(name, tensor)
    dtype = _dtype(name, TORCH_DTYPES, str(tensor.dtype).removeprefix("torch."), tensor.dtype)
    shape = tuple(tensor.shape)
    if dtype == "F4":  # Two values a byte: safetensors counts values.
        if not shape:
            _refuse(name, "two values of 4 bits share its one element, and it has no dimension to "
                    "say so")
        shape = shape[:-1] + (2 * shape[-1],)
    size = tensor.numel() * tensor.element_size()
    # The storage is kept too: `tensor.data = other` must not free what is bound.
    storage = tensor.untyped_storage()
    offset = tensor.storage_offset() * tensor.element_size()
    if offset + size > storage.nbytes():
        _refuse(name, f"its storage has {storage.nbytes()} bytes, it reaches to {offset + size}")

    def where():
        return (tensor.data_ptr() if offset + size <= storage.nbytes() else 0,
                tensor.numel() * tensor.element_size())

    address = tensor.data_ptr()
    device = f"cuda:{tensor.device.index}" if tensor.device.type == "cuda" else ""
    return Described(name, dtype, shape, address, size, True, (tensor, storage), where, device,
                     lambda: 0 if tensor.is_inference() else tensor._version)


# --- numpy ----------------------------------------------------------------------------------------


def _describe_numpy(name, array):
    scalar = not hasattr(array, "ctypes")
    if scalar:  # What a scalar says of its address is that of a copy that is gone by then.
        array = array.__array__()
    if not array.flags.c_contiguous:
        _refuse(name, f"it is not contiguous (shape {list(array.shape)}, strides "
                f"{list(getattr(array, 'strides', ()))} bytes); Segue does not copy")
    if array.dtype.byteorder == ">" or (array.dtype.hasobject or array.dtype.names):
        _refuse(name, f"its dtype {array.dtype} is no plain little-endian number")
    dtype = _dtype(name, NUMPY_DTYPES, array.dtype.name, array.dtype)

    def where():
        return array.__array_interface__["data"][0], array.nbytes

    address, size = where()
    return Described(name, dtype, tuple(array.shape), address, size,
                     array.flags.writeable and not scalar, (array,), where)


# --- Everything else ------------------------------------------------------------------------------


def _describe_shared(name, tensor):
    return Described(name, tensor.dtype, tensor.shape, tensor.address, tensor.nbytes, False,
                     (tensor,), lambda: (tensor.address, tensor.nbytes))


def _describe_dlpack(name, tensor):
    found = Exported(name, tensor)
    code, bits = found.kind
    dtype = _dtype(name, DLPACK_DTYPES, found.kind, f"DLPack's dtype ({code}, {bits} bits)")
    return Described(name, dtype, found.shape, found.address, found.nbytes, found.writable,
                     (tensor, found), found.where, found.device, copies=found.copies)


def _describe_buffer(name, tensor):
    try:
        view = memoryview(tensor)
    except TypeError:
        _refuse(name, f"a {type(tensor).__name__} is no tensor: it has neither DLPack nor the "
                "buffer protocol")
    if not view.c_contiguous:
        _refuse(name, "its buffer is not contiguous; Segue does not copy")
    dtype = _dtype(name, BUFFER_DTYPES, view.format.lstrip("@=<"), f"format '{view.format}'")
    address = _core.buffer_address(view)
    return Described(name, dtype, tuple(view.shape), address, view.nbytes, not view.readonly,
                     (tensor, view), lambda: (address, view.nbytes))
