# SPDX-License-Identifier: Apache-2.0
"""safetensors files and checkpoints, as far as plan and layout speak of them.

A tensor's name is kept as UTF-8 bytes after JSON unescaping, its data as opaque bytes.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import limits
from .dtypes import BY_NAME, Dtype
from .errors import INVALID_ARGUMENT, NOT_FOUND, UNSUPPORTED, limit, require
from .plan import Plan, tensor_size
from .strict_json import parse_object

INDEX_NAME = "model.safetensors.index.json"


@dataclass(frozen=True)
class Entry:
    """One tensor in a header; its data lies at `begin` of the file's data."""

    name: bytes
    dtype: Dtype
    shape: tuple[int, ...]
    begin: int
    size: int


@dataclass(frozen=True)
class Checkpoint:
    """`shards` maps file name to header, in ascending order of the names' bytes."""

    shards: dict[bytes, bytes]
    index: bytes
    entries: dict[bytes, Entry]
    tensors: dict[bytes, bytes]


def _read_entry(name: str, fields: Any, object_name: str) -> Entry:
    where = f"tensor {name!r}"
    require(isinstance(fields, dict), object_name, f"{where} is not an object")
    dtype = BY_NAME.get(fields.get("dtype"))
    require(dtype is not None, object_name, f"{where}: dtype {fields.get('dtype')!r}", UNSUPPORTED)
    shape, offsets = fields.get("shape"), fields.get("data_offsets")
    for numbers in (shape, offsets):
        valid = isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)
        require(valid, object_name, f"{where}: malformed shape or data_offsets")
    require(len(offsets) == 2, object_name, f"{where}: data_offsets are not two numbers")
    size = tensor_size(dtype, tuple(shape), object_name)
    agrees = offsets[1] - offsets[0] == size
    require(agrees, object_name, f"{where}: data_offsets disagree with the shape")
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        require(False, object_name, f"{where}: name is not Unicode text")
    return Entry(encoded, dtype, tuple(shape), offsets[0], size)


def parse_header(header: bytes, object_name: str) -> list[Entry]:
    """Entries of a header in order of their data, which has neither holes nor overlaps."""
    limit(len(header), limits.HEADER_SIZE, object_name, "safetensors header")
    require(header[:1] == b"{", object_name, "safetensors header does not begin with '{'")
    fields = parse_object(header, object_name)
    metadata = fields.pop("__metadata__", {})
    texts = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    require(texts, object_name, "__metadata__ is not a map of strings")
    entries = [_read_entry(name, value, object_name) for name, value in fields.items()]
    entries.sort(key=lambda entry: (entry.begin, entry.size))
    end = 0
    for entry in entries:
        require(entry.begin == end, object_name, f"hole or overlap before tensor {entry.name!r}")
        end += entry.size
    return entries


def check_against_plan(
    entries: dict[bytes, Entry], plan: Plan, object_name: str, code: str
) -> None:
    """Refuses unless `entries` are the plan's tensors: same names, dtypes and shapes."""
    for tensor in plan.tensors:
        entry = entries.get(tensor.name)
        require(entry is not None, object_name, f"tensor {tensor.name!r} is missing", code)
        same = (entry.dtype, entry.shape) == (tensor.dtype, tensor.shape)
        require(same, object_name, f"tensor {tensor.name!r}: not the plan's dtype and shape", code)
    none_else = len(entries) == len(plan.tensors)
    require(none_else, object_name, "tensors that are not in the plan", code)


def _read_file(path: Path) -> bytes:
    require(path.is_file(), "base", f"{path.name} does not exist", NOT_FOUND)
    return path.read_bytes()


def _shard_names(directory: Path) -> tuple[list[bytes], bytes]:
    """Names of the shards, by the index or, without one, the only file; and the index's bytes."""
    if (directory / INDEX_NAME).is_file():
        index = _read_file(directory / INDEX_NAME)
        limit(len(index), limits.INDEX_SIZE, "base", "index file")
        weight_map = parse_object(index, "base").get("weight_map")
        valid = isinstance(weight_map, dict) and all(type(n) is str for n in weight_map.values())
        require(valid, "base", "weight_map is not a map of strings")
        return sorted({name.encode("utf-8") for name in weight_map.values()}), index
    names = sorted(os.fsencode(path.name) for path in directory.glob("*.safetensors"))
    single = len(names) == 1
    require(single, "base", f"{len(names)} shards and no index", INVALID_ARGUMENT)
    return names, b""


def read_checkpoint(directory: Path) -> Checkpoint:
    """Reads all tensors of a directory of safetensors files."""
    from .layout import check_shard_name

    names, index = _shard_names(directory)
    shards: dict[bytes, bytes] = {}
    entries: dict[bytes, Entry] = {}
    tensors: dict[bytes, bytes] = {}
    for name in names:
        check_shard_name(name, "base")
        data = _read_file(directory / os.fsdecode(name))
        header_size = int.from_bytes(data[:8], "little")
        require(8 + header_size <= len(data), "base", f"{name!r}: header runs past the file")
        shards[name] = data[8 : 8 + header_size]
        begin = 8 + header_size
        for entry in parse_header(shards[name], "base"):
            require(entry.name not in entries, "base", f"tensor {entry.name!r} in two shards")
            entries[entry.name] = entry
            tensors[entry.name] = data[begin : begin + entry.size]
            begin += entry.size
        require(begin == len(data), "base", f"{name!r}: {len(data)} bytes, tensors end at {begin}")
    return Checkpoint(shards, index, entries, tensors)
