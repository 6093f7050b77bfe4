# SPDX-License-Identifier: Apache-2.0
"""The table of a payload (section 5): its columns, and the rules that a row obeys by itself.

A row says which chunk changes, how the change is encoded, and what a reader will find at the base
and at the target. The streams that rows draw on are the business of `payload.py`.
"""

from dataclasses import dataclass

from . import limits
from .digest import Digest
from .errors import UNSUPPORTED, limit, require
from .plan import ChunkPlace, Plan
from .reader import Reader

SPARSE, PLANES, SNAPPY, LZ4, ZSTD, RAW = 1, 2, 3, 4, 5, 6
ENCODING_NAMES = {1: "sparse", 2: "planes", 3: "snappy", 4: "lz4", 5: "zstd", 6: "raw"}
STORED, OUTER_ZSTD = 0, 1
OUTER_NAMES = {0: "stored", 1: "zstd"}

GROUP_SIZE, FRAME_SIZE, ROW_SIZE = 6, 9, 67
STREAM_LOW, STREAM_HIGH, STREAM_PLANES, STREAM_DENSE = 0, 1, 2, 10
STREAM_COUNT = 11

# Columns of the rows: name, size of one field, fields per row.
ROW_COLUMNS = (
    ("gap", 4, 1),
    ("encoding", 1, 1),
    ("low_bits", 1, 1),
    ("plane_mask", 1, 1),
    ("constants", 8, 1),
    ("change_count", 4, 1),
    ("dense_size", 4, 1),
    ("inner_size", 4, 1),
    ("touched", 8, 1),
    ("before", 8, 2),
    ("after", 8, 2),
)


@dataclass(frozen=True)
class Group:
    row_count: int
    stream_mask: int


@dataclass(frozen=True)
class Frame:
    outer: int
    outer_size: int
    inner_size: int


@dataclass(frozen=True)
class Row:
    chunk: int
    place: ChunkPlace
    encoding: int
    low_bits: int
    plane_mask: int
    constants: int
    change_count: int
    dense_size: int
    inner_size: int
    touched: int
    before: Digest
    after: Digest

    @property
    def width(self) -> int:
        return self.place.tensor.dtype.width

    @property
    def has_planes(self) -> bool:
        return self.encoding in (SPARSE, PLANES)

    def constant(self, plane: int) -> int:
        return (self.constants >> (8 * plane)) & 0xFF

    def stores_plane(self, plane: int) -> bool:
        return bool(self.plane_mask >> plane & 1)

    def stream_sizes(self) -> dict[int, int]:
        """This row's contribution to each stream, by the table in "Streams and frames"."""
        n, elements = self.change_count, self.place.element_count
        sizes: dict[int, int] = {}
        if self.encoding == SPARSE:
            sizes[STREAM_LOW] = 8 * -(-(n * self.low_bits) // 64)
            sizes[STREAM_HIGH] = 8 * -(-(n + ((elements - 1) >> self.low_bits)) // 64)
        for plane in range(8):
            if self.stores_plane(plane):
                sizes[STREAM_PLANES + plane] = n if self.encoding == SPARSE else elements
        sizes[STREAM_DENSE] = self.dense_size
        return sizes


@dataclass(frozen=True)
class Table:
    groups: list[Group]
    frames: list[Frame]
    rows: list[Row]


def _column(reader: Reader, count: int, size: int, what: str) -> list[int]:
    data = reader.take(count * size, what)
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def _check_planes(row: Row, where: str) -> None:
    require(row.plane_mask >> row.width == 0, "payload", f"{where}: plane_mask beyond the width")
    for plane in range(8):
        elided = plane < row.width and not row.stores_plane(plane)
        allowed = elided or row.constant(plane) == 0
        require(allowed, "payload", f"{where}: constants at plane {plane}, which is not elided")
    require(row.dense_size == 0, "payload", f"{where}: dense_size without a dense part")
    require(row.inner_size == 0, "payload", f"{where}: inner_size without a codec")


def _check_dense(row: Row, where: str) -> None:
    require(row.plane_mask == 0, "payload", f"{where}: plane_mask without planes")
    require(row.constants == 0, "payload", f"{where}: constants without planes")
    size = row.place.size
    require(row.inner_size == size, "payload", f"{where}: inner_size is not the chunk's size")
    in_range = 1 <= row.dense_size <= size
    require(in_range, "payload", f"{where}: dense_size {row.dense_size} for {size} bytes")
    if row.encoding == RAW:
        require(row.dense_size == size, "payload", f"{where}: dense_size is not the chunk's size")


def _check_row(row: Row) -> None:
    where = f"chunk {row.chunk}"
    known = row.encoding in ENCODING_NAMES
    require(known, "payload", f"{where}: unknown encoding {row.encoding}", UNSUPPORTED)
    in_range = 1 <= row.change_count <= row.place.element_count
    require(in_range, "payload", f"{where}: change_count {row.change_count}")
    if row.encoding == SPARSE:
        allowed = row.low_bits <= limits.LOW_BITS_MAX
        require(allowed, "payload", f"{where}: low_bits {row.low_bits}")
    else:
        require(row.low_bits == 0, "payload", f"{where}: low_bits without positions")
        require(row.touched == 0, "payload", f"{where}: touched without positions")
    if row.has_planes:
        _check_planes(row, where)
    else:
        _check_dense(row, where)


def _read_rows(reader: Reader, count: int, plan: Plan) -> list[Row]:
    columns: dict[str, list] = {}
    for name, size, fields in ROW_COLUMNS:
        values = _column(reader, count * fields, size, f"column {name}")
        columns[name] = values if fields == 1 else list(zip(values[0::2], values[1::2]))
    gaps = columns.pop("gap")
    rows = []
    chunk = -1
    for i, gap in enumerate(gaps):
        chunk += 1 + gap
        require(chunk < plan.chunk_count, "payload", f"row {i}: chunk {chunk} is not in the plan")
        fields = {name: values[i] for name, values in columns.items()}
        row = Row(chunk=chunk, place=plan.place(chunk), **fields)
        _check_row(row)
        rows.append(row)
    return rows


def _check_groups(groups: list[Group], frame_count: int, row_count: int) -> None:
    for i, group in enumerate(groups):
        require(group.row_count > 0, "payload", f"group {i} has no rows")
        known = group.stream_mask >> STREAM_COUNT == 0
        require(known, "payload", f"group {i}: stream_mask beyond stream 10")
    sum_rows = sum(group.row_count for group in groups)
    require(sum_rows == row_count, "payload", f"groups have {sum_rows} rows, not {row_count}")
    sum_frames = sum(group.stream_mask.bit_count() for group in groups)
    agrees = sum_frames == frame_count
    require(agrees, "payload", f"stream masks have {sum_frames} frames, not {frame_count}")


def _check_frames(frames: list[Frame]) -> None:
    for i, frame in enumerate(frames):
        known = frame.outer in OUTER_NAMES
        require(known, "payload", f"frame {i}: unknown outer codec {frame.outer}", UNSUPPORTED)
        limit(frame.inner_size, limits.FRAME_INNER_SIZE, "payload", f"frame {i}: inner_size")
        if frame.outer == STORED:
            same = frame.outer_size == frame.inner_size
            require(same, "payload", f"frame {i}: stored, but its two sizes differ")


def table_size(group_count: int, frame_count: int, row_count: int) -> int:
    return GROUP_SIZE * group_count + FRAME_SIZE * frame_count + ROW_SIZE * row_count


def parse_table(
    data: bytes, group_count: int, frame_count: int, row_count: int, plan: Plan
) -> Table:
    """Reads the table's inner bytes. Limits and single fields first, then what must add up."""
    reader = Reader(data, "payload")
    group_rows = _column(reader, group_count, 4, "column group_rows")
    stream_masks = _column(reader, group_count, 2, "column stream_mask")
    outer = _column(reader, frame_count, 1, "column outer")
    outer_sizes = _column(reader, frame_count, 4, "column outer_size")
    inner_sizes = _column(reader, frame_count, 4, "column inner_size")
    groups = [Group(*fields) for fields in zip(group_rows, stream_masks)]
    frames = [Frame(*fields) for fields in zip(outer, outer_sizes, inner_sizes)]
    _check_frames(frames)
    _check_groups(groups, frame_count, row_count)
    rows = _read_rows(reader, row_count, plan)
    reader.end()
    return Table(groups, frames, rows)
