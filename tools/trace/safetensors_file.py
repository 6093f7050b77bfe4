# SPDX-License-Identifier: Apache-2.0
"""Reads and writes safetensors files as raw bits, on numpy alone.

Why not the safetensors package: numpy has no BF16 or FP8 type, so its numpy door would convert;
here a tensor is its dtype name and an unsigned array, and the bytes go through untouched. The
layout (wider dtypes first, then by name, header padded to 8 bytes) is that package's own, so a file
written here and one written there from the same tensors are alike.
"""

import json
import math
from typing import NamedTuple

import numpy as np

# Storage type and width of the dtypes the trace uses.
STORAGE = {
    "F32": np.dtype("<u4"),
    "BF16": np.dtype("<u2"),
    "F16": np.dtype("<u2"),
    "F8_E4M3": np.dtype("u1"),
    "F8_E8M0": np.dtype("u1"),
    "U8": np.dtype("u1"),
}
HEADER_SIZE_MAX = 100_000_000


class Tensor(NamedTuple):
    """A safetensors dtype name and the stored bits as an unsigned array of the tensor's shape."""

    dtype: str
    bits: np.ndarray


def write_file(path, tensors):
    """Writes {name: Tensor} to path."""
    order = sorted(tensors, key=lambda name: (-STORAGE[tensors[name].dtype].itemsize, name))
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in order:
        dtype, bits = tensors[name]
        if bits.dtype != STORAGE[dtype]:
            raise ValueError(f"{name}: {dtype} is stored as {STORAGE[dtype]}, got {bits.dtype}")
        end = offset + bits.nbytes
        header[name] = {"dtype": dtype, "shape": list(bits.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name in order:
            file.write(np.ascontiguousarray(tensors[name].bits).tobytes())


def read_file(path):
    """{name: Tensor} of one file; the arrays are read-only maps of it."""
    with open(path, "rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        if header_size > HEADER_SIZE_MAX:
            raise ValueError(f"{path}: header of {header_size} bytes is beyond the limit")
        header = json.loads(file.read(header_size))
    header.pop("__metadata__", None)
    data = np.memmap(path, dtype=np.uint8, mode="r", offset=8 + header_size)
    tensors = {}
    for name, entry in header.items():
        storage, (begin, end) = STORAGE[entry["dtype"]], entry["data_offsets"]
        if end - begin != math.prod(entry["shape"]) * storage.itemsize or end > data.size:
            raise ValueError(f"{path}: {name} does not fit its shape or the file")
        # A plain copy-free view: memmap subclasses cost much in later numpy calls.
        bits = np.asarray(data[begin:end]).view(storage).reshape(entry["shape"])
        tensors[name] = Tensor(entry["dtype"], bits)
    return tensors


def read_version(directory):
    """{name: Tensor} of every safetensors file in a directory (one version)."""
    tensors = {}
    for path in sorted(directory.glob("*.safetensors")):
        for name, tensor in read_file(path).items():
            if name in tensors:
                raise ValueError(f"{path}: {name} lies in two files")
            tensors[name] = tensor
    if not tensors:
        raise ValueError(f"{directory}: no safetensors file")
    return tensors
