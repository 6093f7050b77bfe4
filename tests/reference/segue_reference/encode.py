# SPDX-License-Identifier: Apache-2.0
"""Encoder for test vectors: payloads from rows whose fields are chosen by hand.

`Draft` is a payload taken apart: every field of the table is an ordinary value that a test may
overwrite with a lie before `serialize` puts the bytes together. Nothing is chosen by cost here.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np
import zstandard

from . import digest, writers
from .encodings import xor
from .layout import MAGIC as LAYOUT_MAGIC
from .layout import inner_bytes
from .payload import MAGIC, TRAILER_FIELDS, TRAILER_MAGIC, TRAILER_SIZE
from .plan import MAGIC as PLAN_MAGIC
from .plan import Plan
from .table import (
    ENCODING_NAMES,
    OUTER_ZSTD,
    ROW_COLUMNS,
    STORED,
    STREAM_COUNT,
    STREAM_DENSE,
    STREAM_HIGH,
    STREAM_LOW,
    STREAM_PLANES,
    table_size,
)

ENCODING_CODES = {name: code for code, name in ENCODING_NAMES.items()}
ALL_STREAMS = frozenset(range(STREAM_COUNT))
USUALLY_COMPRESSED = ALL_STREAMS - {STREAM_LOW, STREAM_DENSE}


def zstd(data: bytes) -> bytes:
    """A frame by the library, with content size and checksum."""
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)


def plan_bytes(tensors: list[tuple[bytes, int, list[int]]], chunk_size_log2: int) -> bytes:
    """A plan object of (name, dtype code, shape) records in the order given."""
    out = bytearray(PLAN_MAGIC + (1).to_bytes(4, "little"))
    out += chunk_size_log2.to_bytes(4, "little") + len(tensors).to_bytes(8, "little")
    for name, code, shape in tensors:
        out += bytes([code, len(shape)]) + len(name).to_bytes(2, "little")
        out += b"".join(dim.to_bytes(8, "little") for dim in shape) + name
    return bytes(out)


def layout_object(inner: bytes, frame: bytes | None = None, inner_size: int | None = None) -> bytes:
    size = len(inner) if inner_size is None else inner_size
    head = LAYOUT_MAGIC + (1).to_bytes(4, "little") + bytes(4) + size.to_bytes(8, "little")
    return head + (zstd(inner) if frame is None else frame)


def layout_bytes(shards: dict[bytes, bytes], index: bytes) -> tuple[bytes, str]:
    """A layout object and its digest."""
    inner = inner_bytes(shards, index)
    return layout_object(inner), hashlib.sha256(inner).hexdigest()


@dataclass(frozen=True)
class Choice:
    """How to encode one chunk. `low_bits` None is the usual floor(log2(N / n)). `elide` None elides
    every plane that holds one value; otherwise only the planes named. `dense` replaces what the
    codec would write. `chunk` counts within the tensor."""

    tensor: bytes
    encoding: str
    chunk: int = 0
    low_bits: int | None = None
    elide: frozenset[int] | None = None
    dense: bytes | None = None
    touched: bool = True


@dataclass
class DraftFrame:
    """`size` and `inner_size` are what the table will say; None is the truth."""

    outer: int
    stored: bytes
    inner: bytes
    size: int | None = None
    inner_size: int | None = None


@dataclass
class DraftGroup:
    rows: int
    stream_mask: int
    frames: list[DraftFrame]


@dataclass
class Draft:
    """`rows` are dictionaries of the table's columns, `chunk` (a chunk number) in place of `gap`;
    an explicit `gap` wins. `trailer` overrides computed fields. `table` replaces the table's frame,
    `tail` follows the last frame."""

    groups: list[DraftGroup] = field(default_factory=list)
    rows: list[dict] = field(default_factory=list)
    prelude: bytes = MAGIC + (1).to_bytes(4, "little") + bytes(4)
    trailer: dict[str, int] = field(default_factory=dict)
    trailer_magic: bytes = TRAILER_MAGIC
    table: bytes | None = None
    table_tail: bytes = b""
    tail: bytes = b""


def pack_words(bits: np.ndarray) -> bytes:
    """Bits, least significant first, as whole 64-bit words."""
    padded = np.concatenate([bits.astype(np.uint8), np.zeros(-len(bits) % 64, dtype=np.uint8)])
    return np.packbits(padded, bitorder="little").tobytes()


def elias_fano(positions: list[int], count: int, low_bits: int) -> tuple[bytes, bytes]:
    """Low and high parts for positions below `count`; they need not ascend, so that lies encode."""
    low = [[p >> b & 1 for b in range(low_bits)] for p in positions]
    high = np.zeros(len(positions) + ((count - 1) >> low_bits), dtype=np.uint8)
    for i, p in enumerate(positions):
        high[(p >> low_bits) + i] = 1
    return pack_words(np.array(low, dtype=np.uint8).reshape(-1)), pack_words(high)


def usual_low_bits(element_count: int, change_count: int) -> int:
    return max(0, (element_count // change_count).bit_length() - 1)


def split_planes(values: np.ndarray, elide: frozenset[int] | None) -> tuple[int, int, dict]:
    """Plane mask, constants, and the stored planes by stream, of (count, width) masks."""
    mask = constants = 0
    planes = {}
    for p in range(values.shape[1]):
        plane = values[:, p]
        constant = bool((plane == plane[0]).all())
        if constant and (elide is None or p in elide):
            constants |= int(plane[0]) << (8 * p)
        else:
            mask |= 1 << p
            planes[STREAM_PLANES + p] = plane.tobytes()
    return mask, constants, planes


def _dense_part(choice: Choice, mask: bytes, target: bytes) -> bytes:
    if choice.dense is not None:
        return choice.dense
    codecs = {"snappy": writers.snappy_block, "lz4": writers.lz4_block, "zstd": zstd}
    return target if choice.encoding == "raw" else codecs[choice.encoding](mask)


def encode_row(
    plan: Plan, choice: Choice, base: dict[bytes, bytes], target: dict[bytes, bytes]
) -> tuple[dict, dict[int, bytes]]:
    """One row's columns and its contributions to the streams."""
    tensor = next(t for t in plan.tensors if t.name == choice.tensor)
    place = plan.place(tensor.first_chunk + choice.chunk)
    assert place.tensor is tensor
    span = slice(place.offset, place.offset + place.size)
    old, new = base[choice.tensor][span], target[choice.tensor][span]
    mask = xor(old, new)
    values = np.frombuffer(mask, dtype=np.uint8).reshape(-1, tensor.dtype.width)
    positions = np.flatnonzero(values.any(axis=1))
    row = {name: 0 for name, _, _ in ROW_COLUMNS if name != "gap"} | {
        "chunk": tensor.first_chunk + choice.chunk,
        "encoding": ENCODING_CODES[choice.encoding],
        "change_count": len(positions),
        "before": digest.digest_of(old, tensor.number, place.offset),
        "after": digest.digest_of(new, tensor.number, place.offset),
    }
    if choice.encoding == "planes":
        row["plane_mask"], row["constants"], parts = split_planes(values, choice.elide)
    elif choice.encoding == "sparse":
        n, count = len(positions), len(values)
        low_bits = usual_low_bits(count, n) if choice.low_bits is None else choice.low_bits
        row["low_bits"] = low_bits
        row["plane_mask"], row["constants"], parts = split_planes(values[positions], choice.elide)
        low, high = elias_fano([int(p) for p in positions], count, low_bits)
        parts |= {STREAM_LOW: low, STREAM_HIGH: high}
        if choice.touched:
            width = tensor.dtype.width
            row["touched"] = digest.touched_of(old, positions, width, tensor.number, place.offset)
    else:
        parts = {STREAM_DENSE: _dense_part(choice, mask, new)}
        row["dense_size"], row["inner_size"] = len(parts[STREAM_DENSE]), place.size
    return row, parts


def draft_payload(
    plan: Plan,
    groups: list[list[Choice]],
    base: dict[bytes, bytes],
    target: dict[bytes, bytes],
    compressed: frozenset[int] = USUALLY_COMPRESSED,
) -> Draft:
    """A payload of groups of rows; the streams in `compressed` are Zstd frames, others stored."""
    draft = Draft()
    for choices in groups:
        encoded = [encode_row(plan, choice, base, target) for choice in choices]
        group = DraftGroup(len(choices), 0, [])
        for stream in range(STREAM_COUNT):
            inner = b"".join(parts.get(stream, b"") for _, parts in encoded)
            if inner:
                stored = zstd(inner) if stream in compressed else inner
                outer = OUTER_ZSTD if stream in compressed else STORED
                group.stream_mask |= 1 << stream
                group.frames.append(DraftFrame(outer, stored, inner))
        draft.groups.append(group)
        draft.rows += [row for row, _ in encoded]
    return draft


def _column(values: list, size: int) -> bytes:
    flat = [v for value in values for v in (value if isinstance(value, tuple) else (value,))]
    return b"".join(v.to_bytes(size, "little") for v in flat)


def table_inner(draft: Draft) -> bytes:
    """The table's inner bytes, lies included."""
    frames = [frame for group in draft.groups for frame in group.frames]
    sizes = [len(f.stored) if f.size is None else f.size for f in frames]
    inner_sizes = [len(f.inner) if f.inner_size is None else f.inner_size for f in frames]
    out = _column([g.rows for g in draft.groups], 4)
    out += _column([g.stream_mask for g in draft.groups], 2)
    out += _column([f.outer for f in frames], 1) + _column(sizes, 4) + _column(inner_sizes, 4)
    previous = -1
    gaps = []
    for row in draft.rows:
        gaps.append(row.get("gap", row["chunk"] - previous - 1))
        previous = row["chunk"]
    for name, size, _ in ROW_COLUMNS:
        out += _column(gaps if name == "gap" else [row[name] for row in draft.rows], size)
    return out


def serialize(draft: Draft) -> bytes:
    """The payload object."""
    frames = [frame for group in draft.groups for frame in group.frames]
    body = draft.prelude + b"".join(frame.stored for frame in frames) + draft.tail
    inner = table_inner(draft)
    table = (zstd(inner) if draft.table is None else draft.table) + draft.table_tail
    counts = len(draft.groups), len(frames), len(draft.rows)
    trailer = {
        "table_offset": len(body),
        "table_size": len(table),
        "table_inner_size": table_size(*counts),
        "group_count": counts[0],
        "frame_count": counts[1],
        "row_count": counts[2],
        "reserved": 0,
    } | draft.trailer
    fields = b"".join(trailer[name].to_bytes(8, "little") for name in TRAILER_FIELDS)
    assert len(fields) + 8 == TRAILER_SIZE
    return body + table + fields + draft.trailer_magic
