# SPDX-License-Identifier: Apache-2.0
"""The layout of section 3: how tensors lie in files, and the files rebuilt from it."""

import hashlib
import unicodedata
from dataclasses import dataclass

from . import limits, zstd_frame
from .errors import CORRUPTION, UNSUPPORTED, limit, require
from .plan import Plan
from .reader import Reader
from .safetensors_reader import INDEX_NAME, Checkpoint, Entry, check_against_plan, parse_header

MAGIC = b"SEGUELAY"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Layout:
    """`shards` maps file name to safetensors header, in the order of the names."""

    shards: dict[bytes, bytes]
    index: bytes
    digest: str


def check_shard_name(name: bytes, object_name: str) -> None:
    """Refuses a name that is not one plain path component."""
    require(len(name) > 0, object_name, "empty shard name")
    limit(len(name), limits.SHARD_NAME_SIZE, object_name, "size of a shard name")
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        require(False, object_name, "shard name is not UTF-8")
    require(text.endswith(".safetensors"), object_name, f"shard name {text!r}: wrong ending")
    require(not text.startswith("."), object_name, f"shard name {text!r} begins with '.'")
    bad = any(c in "/\\" or unicodedata.category(c) == "Cc" for c in text)
    require(not bad, object_name, f"shard name {text!r} holds a forbidden character")


def inner_bytes(shards: dict[bytes, bytes], index: bytes) -> bytes:
    """The inner bytes of a layout, whose SHA-256 is its digest."""
    parts = [len(shards).to_bytes(4, "little")]
    for name, header in sorted(shards.items()):
        parts += [len(name).to_bytes(2, "little"), name, len(header).to_bytes(8, "little"), header]
    return b"".join(parts + [len(index).to_bytes(8, "little"), index])


def _read_shard(reader: Reader) -> tuple[bytes, bytes]:
    name_size = reader.u16("name_size")
    limit(name_size, limits.SHARD_NAME_SIZE, "layout", "size of a shard name")
    name = reader.take(name_size, "shard name")
    check_shard_name(name, "layout")
    header_size = reader.u64("header_size")
    limit(header_size, limits.HEADER_SIZE, "layout", "safetensors header")
    return name, reader.take(header_size, "safetensors header")


def _read_inner(inner: bytes) -> tuple[dict[bytes, bytes], bytes]:
    reader = Reader(inner, "layout")
    count = reader.u32("shard_count")
    limit(count, limits.SHARD_COUNT, "layout", "shard_count")
    shards: dict[bytes, bytes] = {}
    for _ in range(count):
        name, header = _read_shard(reader)
        if shards:
            ascending = next(reversed(shards)) < name
            require(ascending, "layout", "shard names are not in strictly ascending order")
        shards[name] = header
    index_size = reader.u64("index_size")
    limit(index_size, limits.INDEX_SIZE, "layout", "index file")
    index = reader.take(index_size, "index")
    reader.end()
    return shards, index


def parse_layout(data: bytes) -> Layout:
    """Reads a layout object and applies the rules of section 3 that need no plan."""
    reader = Reader(data, "layout")
    require(reader.take(8, "magic") == MAGIC, "layout", "wrong magic")
    version = reader.u32("format_version")
    require(version == FORMAT_VERSION, "layout", f"format_version {version}", UNSUPPORTED)
    require(reader.u32("reserved") == 0, "layout", "reserved field is not 0")
    inner_size = reader.u64("inner_size")
    limit(inner_size, limits.LAYOUT_INNER_SIZE, "layout", "inner_size")
    inner = zstd_frame.decode(data[reader.offset :], inner_size, "layout")
    shards, index = _read_inner(inner)
    return Layout(shards, index, hashlib.sha256(inner).hexdigest())


def layout_of(checkpoint: Checkpoint) -> Layout:
    """The layout that a checkpoint on disk has."""
    inner = inner_bytes(checkpoint.shards, checkpoint.index)
    return Layout(checkpoint.shards, checkpoint.index, hashlib.sha256(inner).hexdigest())


def check_layout(layout: Layout, plan: Plan) -> None:
    """Refuses a layout whose headers do not hold each tensor of the plan once."""
    entries: dict[bytes, Entry] = {}
    for header in layout.shards.values():
        for entry in parse_header(header, "layout"):
            require(entry.name not in entries, "layout", f"tensor {entry.name!r} in two shards")
            entries[entry.name] = entry
    check_against_plan(entries, plan, "layout", CORRUPTION)


def build_files(layout: Layout, tensors: dict[bytes, bytes]) -> dict[str, bytes]:
    """The files of a checkpoint: name to bytes."""
    files = {}
    for name, header in layout.shards.items():
        data = b"".join(tensors[entry.name] for entry in parse_header(header, "layout"))
        files[name.decode("utf-8")] = len(header).to_bytes(8, "little") + header + data
    if layout.index:
        files[INDEX_NAME] = layout.index
    return files
