# SPDX-License-Identifier: Apache-2.0
"""A payload object (section 5): prelude, frames, table, trailer; and the split of the frames' bytes
into what each row contributes to each stream.
"""

from dataclasses import dataclass

from . import zstd_frame
from .errors import UNSUPPORTED, require
from .plan import Plan
from .reader import Reader
from .table import OUTER_ZSTD, STREAM_COUNT, Frame, Row, Table, parse_table, table_size

MAGIC = b"SEGUEPAY"
TRAILER_MAGIC = b"SEGUETRL"
FORMAT_VERSION = 1
PRELUDE_SIZE = 16
TRAILER_SIZE = 64
TRAILER_FIELDS = (
    "table_offset",
    "table_size",
    "table_inner_size",
    "group_count",
    "frame_count",
    "row_count",
    "reserved",
)


@dataclass(frozen=True)
class Payload:
    """`parts[i]` maps a stream's number to what row i contributes to it."""

    trailer: dict[str, int]
    table: Table
    parts: list[dict[int, bytes]]

    @property
    def rows(self) -> list[Row]:
        return self.table.rows


def _check_prelude(data: bytes) -> None:
    reader = Reader(data, "payload")
    require(reader.take(8, "magic") == MAGIC, "payload", "wrong magic")
    version = reader.u32("format_version")
    require(version == FORMAT_VERSION, "payload", f"format_version {version}", UNSUPPORTED)
    require(reader.u32("reserved") == 0, "payload", "reserved field of the prelude is not 0")


def _read_trailer(data: bytes, plan: Plan) -> dict[str, int]:
    enough = len(data) >= PRELUDE_SIZE + TRAILER_SIZE
    require(enough, "payload", "smaller than prelude and trailer")
    reader = Reader(data[-TRAILER_SIZE:], "payload")
    trailer = {name: reader.u64(name) for name in TRAILER_FIELDS}
    require(reader.take(8, "magic") == TRAILER_MAGIC, "payload", "wrong magic of the trailer")
    require(trailer["reserved"] == 0, "payload", "reserved field of the trailer is not 0")
    size = trailer["table_offset"] + trailer["table_size"] + TRAILER_SIZE
    require(size == len(data), "payload", f"trailer says {size} bytes, object has {len(data)}")
    require(trailer["table_offset"] >= PRELUDE_SIZE, "payload", "table inside the prelude")
    groups, frames, rows = (trailer[name] for name in TRAILER_FIELDS[3:6])
    require(rows <= plan.chunk_count, "payload", f"row_count {rows} exceeds the plan's chunks")
    require(groups <= rows, "payload", f"group_count {groups} exceeds row_count {rows}")
    require(frames <= STREAM_COUNT * groups, "payload", f"frame_count {frames} for {groups} groups")
    agrees = trailer["table_inner_size"] == table_size(groups, frames, rows)
    require(agrees, "payload", "table_inner_size does not follow from the counts")
    return trailer


def _read_table(data: bytes, trailer: dict[str, int], plan: Plan) -> Table:
    begin = trailer["table_offset"]
    stored = data[begin : begin + trailer["table_size"]]
    inner = zstd_frame.decode(stored, trailer["table_inner_size"], "payload")
    counts = (trailer[name] for name in TRAILER_FIELDS[3:6])
    table = parse_table(inner, *counts, plan)
    sizes = sum(frame.outer_size for frame in table.frames)
    fits = sizes == begin - PRELUDE_SIZE
    require(fits, "payload", f"frames have {sizes} bytes, not {begin - PRELUDE_SIZE}")
    return table


def _group_frames(table: Table) -> list[tuple[list[Row], dict[int, Frame]]]:
    """The rows of each group and its frames by stream; refuses sizes that do not add up."""
    rows, frames = iter(table.rows), iter(table.frames)
    result = []
    for i, group in enumerate(table.groups):
        members = [next(rows) for _ in range(group.row_count)]
        of_stream = {}
        for stream in range(STREAM_COUNT):
            size = sum(row.stream_sizes().get(stream, 0) for row in members)
            has_frame = bool(group.stream_mask >> stream & 1)
            where = f"group {i}, stream {stream}"
            agrees = has_frame == (size > 0)
            require(agrees, "payload", f"{where}: stream_mask against {size} bytes of rows")
            if has_frame:
                frame = next(frames)
                agrees = frame.inner_size == size
                require(agrees, "payload", f"{where}: inner_size {frame.inner_size}, rows {size}")
                of_stream[stream] = frame
        result.append((members, of_stream))
    return result


def _decode_frame(frame: Frame, stored: bytes) -> bytes:
    if frame.outer == OUTER_ZSTD:
        return zstd_frame.decode(stored, frame.inner_size, "payload", needs_checksum=True)
    return stored


def parse_payload(data: bytes, plan: Plan) -> Payload:
    """Reads a payload object up to the point where the base is needed."""
    _check_prelude(data)
    trailer = _read_trailer(data, plan)
    table = _read_table(data, trailer, plan)
    parts: list[dict[int, bytes]] = []
    offset = PRELUDE_SIZE
    for members, frames in _group_frames(table):
        streams = {}
        for stream, frame in frames.items():
            streams[stream] = Reader(
                _decode_frame(frame, data[offset : offset + frame.outer_size]), "payload"
            )
            offset += frame.outer_size
        for row in members:
            sizes = row.stream_sizes().items()
            parts.append({s: streams[s].take(size, "a stream") for s, size in sizes if size > 0})
    return Payload(trailer, table, parts)
