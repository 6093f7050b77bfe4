# SPDX-License-Identifier: Apache-2.0
"""The checkpoint that an engine was started from: names, dtypes and shapes, and bytes on demand.

Bindings need what the headers of its safetensors files say; probing needs some tensors' bytes too.
Nothing of it is taken on trust: the receiver's own proof decides whether live bytes are a version.
"""

from __future__ import annotations

import dataclasses
import json
import math
import mmap
import os
import pathlib
import struct
from collections.abc import Mapping

from ... import CorruptionError, NotFoundError, UnsupportedError
from .placement import dtype_bits

HEADER_BYTES_MAX = 100_000_000  # As segue/limits has it, and the safetensors library.


@dataclasses.dataclass(frozen=True)
class Stored:
    """A tensor of the checkpoint. `shape` as safetensors has it; `places`: the same in elements as
    views count them (two 4-bit values are one)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: pathlib.Path
    begin: int
    end: int

    @property
    def width(self) -> int:
        return max(1, dtype_bits(self.dtype) // 8)

    @property
    def places(self) -> tuple[int, ...]:
        if dtype_bits(self.dtype) >= 8 or not self.shape:
            return self.shape
        return self.shape[:-1] + (self.shape[-1] * dtype_bits(self.dtype) // 8,)

    def read(self) -> memoryview:
        """Its bytes, mapped."""
        if self.begin == self.end:
            return memoryview(b"")
        with open(self.path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return memoryview(mapped)[self.begin:self.end]


class Checkpoint:
    """`tensors` by name and `config` (config.json; empty without one) of a directory."""

    def __init__(self, directory: str | os.PathLike):
        self.directory = pathlib.Path(directory)
        self.tensors: dict[str, Stored] = {}
        for shard in _shards(self.directory):
            for stored in read_header(shard):
                if stored.name in self.tensors:
                    raise CorruptionError(
                        f"tensor '{stored.name}' is in '{self.tensors[stored.name].path}' and in "
                        f"'{shard}'")
                self.tensors[stored.name] = stored
        config = self.directory / "config.json"
        self.config = _object(config, config.read_bytes()) if config.is_file() else {}


def _object(path: pathlib.Path, text: bytes) -> dict:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"'{path}' holds no JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorruptionError(f"'{path}' holds no JSON object")
    return value


def _shards(directory: pathlib.Path) -> list[pathlib.Path]:
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        names = _object(index, index.read_bytes()).get("weight_map")
        if not isinstance(names, dict):
            raise CorruptionError(f"'{index}' has no weight_map")
        for name in names.values():
            if not isinstance(name, str) or not _plain(name):
                raise CorruptionError(f"'{index}' names the file {name!r}, which is not beside it")
        return sorted({directory / name for name in names.values()})
    if (directory / "model.safetensors").is_file():
        return [directory / "model.safetensors"]
    raise NotFoundError(f"'{directory}' holds neither model.safetensors nor its index")


def _plain(name: str) -> bool:
    """Whether it is the name of a file and nothing more."""
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return pathlib.PurePath(name).name == name != ".." and b"\0" not in encoded and (
        0 < len(encoded) < 256)


def read_header(path: pathlib.Path) -> list[Stored]:
    """What the header of a safetensors file says, checked against the file's size."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(HEADER_BYTES_MAX, size - 8):
                raise CorruptionError(f"'{path}' states a header of {length} bytes")
            header = _object(path, file.read(length))
    except FileNotFoundError as error:
        raise NotFoundError(f"'{path}' is not there") from error
    except (OSError, struct.error) as error:
        raise CorruptionError(f"'{path}' is no safetensors file: {error}") from error
    header.pop("__metadata__", None)
    return [_stored(path, name, entry, 8 + length, size) for name, entry in header.items()]


def _stored(path, name, entry, base, size) -> Stored:
    try:
        name.encode()
        begin, end = map(_count, entry["data_offsets"])
        shape = tuple(_count(n) for n in entry["shape"])
        if not isinstance(entry["dtype"], str):
            raise TypeError(f"the dtype {entry['dtype']!r}")
        stored = Stored(name, entry["dtype"], shape, path, base + begin, base + end)
        bits = math.prod(shape) * dtype_bits(stored.dtype)
    except UnsupportedError as error:
        raise UnsupportedError(f"tensor '{name}' of '{path}': {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"tensor {name!r} of '{path}' has a bad entry: {error!r}") from error
    if not (0 <= begin <= end <= size - base) or (end - begin) * 8 != bits:
        raise CorruptionError(f"tensor '{name}' of '{path}' lies at bytes {begin} to {end}, which "
                              f"does not fit its shape {list(shape)}")
    return stored


def _count(value: object) -> int:
    """A number of elements or bytes, as headers have them."""
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise TypeError(f"{value!r:.60} is no number of elements or bytes")
    return value


def number_in(config: Mapping, key: str, default: int | None = None) -> int:
    """A number of a model's configuration. UnsupportedError for what is none, or is missing and has
    no default."""
    value = config.get(key)
    if value is None and default is not None:
        return default
    least = 1 if default is None else 0
    if type(value) is not int or not least <= value < 1 << 31:
        raise UnsupportedError(f"config.json has {value!r:.60} as {key}, which is no such number")
    return value


def architecture_of(config: Mapping) -> str:
    """The first architecture that config.json names; "" without one."""
    names = config.get("architectures") or [""]
    if not isinstance(names, list) or not isinstance(names[0], str):
        raise UnsupportedError(f"config.json has {names!r:.60} as architectures, not their names")
    return names[0]
