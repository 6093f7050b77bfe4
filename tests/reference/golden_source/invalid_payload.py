# SPDX-License-Identifier: Apache-2.0
"""Lies in a payload's prelude, trailer and table, and in its rows' fields."""

import hashlib

from segue_reference import snappy_block
from segue_reference.encode import DraftFrame, DraftGroup, serialize, table_inner, zstd
from segue_reference.writers import ZstdFields, varint, zstd_frame

from .invalid import (
    A_SPARSE,
    B_SPARSE,
    C_PLANES,
    D_RAW,
    F_SNAPPY,
    G_LZ4,
    H_ZSTD,
    draft_of,
    frame_of,
    lie,
    row_of,
    two_groups,
    two_owners,
)
from .scenario import Vector

SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"


def set_bytes(vector: Vector, data: bytes) -> None:
    """Replaces the payload by bytes that have no draft; keeps the manifest's sums as they were."""
    rows = draft_of(vector).rows
    vector.manifest["changed_chunks"] = len(rows)
    vector.manifest["changed_elements"] = sum(row["change_count"] for row in rows)
    vector.entries[0] = {"rows": len(rows)}
    vector.payloads[0] = data


# Prelude and trailer.


@lie("payload", "object of no bytes")
def payload_empty(vector: Vector) -> None:
    set_bytes(vector, b"")


@lie("payload", "last 10 bytes are missing")
def payload_truncated(vector: Vector) -> None:
    set_bytes(vector, serialize(draft_of(vector))[:-10])


@lie("payload", "8 bytes after the trailer")
def payload_trailing_bytes(vector: Vector) -> None:
    set_bytes(vector, serialize(draft_of(vector)) + bytes(8))


@lie("payload", "magic of the prelude")
def prelude_magic(vector: Vector) -> None:
    draft_of(vector).prelude = b"SEGUEPAX" + draft_of(vector).prelude[8:]


@lie("payload", "format_version 2", code="unsupported")
def prelude_version(vector: Vector) -> None:
    draft_of(vector).prelude = b"SEGUEPAY\x02" + bytes(7)


@lie("payload", "reserved field of the prelude is 1")
def prelude_reserved(vector: Vector) -> None:
    draft_of(vector).prelude = draft_of(vector).prelude[:12] + b"\1\0\0\0"


@lie("payload", "magic of the trailer")
def trailer_magic(vector: Vector) -> None:
    draft_of(vector).trailer_magic = b"SEGUETRX"


@lie("payload", "reserved field of the trailer is 1")
def trailer_reserved(vector: Vector) -> None:
    draft_of(vector).trailer["reserved"] = 1


@lie("payload", "table_offset 2^60")
def trailer_table_offset_huge(vector: Vector) -> None:
    draft_of(vector).trailer["table_offset"] = 1 << 60


@lie("payload", "table_offset and table_size wrap around 2^64 to the object's size")
def trailer_sizes_wrap(vector: Vector) -> None:
    draft = draft_of(vector)
    size = len(serialize(draft)) - 64
    draft.trailer |= {"table_offset": (1 << 64) - 16, "table_size": size + 16}


@lie("payload", "table_size one byte too large")
def trailer_table_size(vector: Vector) -> None:
    draft = draft_of(vector)
    draft.trailer["table_size"] = len(zstd(table_inner(draft))) + 1


@lie("payload", "table_inner_size one more than the counts give")
def trailer_table_inner_size(vector: Vector) -> None:
    draft = draft_of(vector)
    draft.trailer["table_inner_size"] = len(table_inner(draft)) + 1


@lie("payload", "table_inner_size 2^60")
def trailer_table_inner_size_huge(vector: Vector) -> None:
    draft_of(vector).trailer["table_inner_size"] = 1 << 60


@lie("payload", "row_count 2^60")
def trailer_row_count_huge(vector: Vector) -> None:
    draft_of(vector).trailer["row_count"] = 1 << 60


@lie("payload", "row_count such that 67 times it wraps around 2^64 to the true size")
def trailer_row_count_wraps(vector: Vector) -> None:
    draft = draft_of(vector)
    inverse = pow(67, -1, 1 << 64)
    size = len(table_inner(draft)) + 1
    rest = size - 6 * len(draft.groups) - 9 * sum(len(g.frames) for g in draft.groups)
    draft.trailer |= {"row_count": rest * inverse % (1 << 64), "table_inner_size": size}


@lie("payload", "frame_count above 11 for each group")
def trailer_frame_count(vector: Vector) -> None:
    draft = draft_of(vector)
    frames = 11 * len(draft.groups) + 1
    size = 6 * len(draft.groups) + 9 * frames + 67 * len(draft.rows)
    draft.trailer |= {"frame_count": frames, "table_inner_size": size}
    draft.table = zstd(table_inner(draft).ljust(size, b"\0"))


@lie("payload", "4 bytes between the last frame and the table")
def frames_leave_a_gap(vector: Vector) -> None:
    draft_of(vector).tail = bytes(4)


@lie("payload", "frames claim one byte more than there is before the table")
def frames_exceed_table_offset(vector: Vector) -> None:
    frame = frame_of(vector, 1, 10)
    frame.size = len(frame.stored) + 1
    frame.inner_size = len(frame.inner) + 1
    row_of(vector, G_LZ4)["dense_size"] += 1


# The table's frame.


@lie("payload", "table is not a Zstd frame")
def table_garbage(vector: Vector) -> None:
    draft_of(vector).table = bytes(40)


@lie("payload", "skippable frame before the table's frame")
def table_skippable_first(vector: Vector) -> None:
    draft_of(vector).table = SKIPPABLE + zstd(table_inner(draft_of(vector)))


@lie("payload", "second Zstd frame after the table's frame")
def table_two_frames(vector: Vector) -> None:
    draft_of(vector).table_tail = zstd(b"")


@lie("payload", "table decodes to one byte more than table_inner_size")
def table_decodes_to_more(vector: Vector) -> None:
    draft_of(vector).table = zstd(table_inner(draft_of(vector)) + b"\0")


@lie("payload", "table decodes to one byte less, without a content size that says so")
def table_decodes_to_less(vector: Vector) -> None:
    inner = table_inner(draft_of(vector))[:-1]
    draft_of(vector).table = zstd_frame(inner, ZstdFields(content_size=None, window_log=17))


@lie("payload", "checksum of the table's frame is wrong")
def table_checksum(vector: Vector) -> None:
    inner = table_inner(draft_of(vector))
    draft_of(vector).table = zstd_frame(inner, ZstdFields(damage_checksum=True))


@lie("payload", "Zstd window of the table's frame is 2^24", "resource_exhausted", ("corruption",))
def table_window(vector: Vector) -> None:
    draft_of(vector).table = zstd_frame(table_inner(draft_of(vector)), ZstdFields(window_log=24))


# Groups and frames.


@lie("payload", "groups have one row fewer than the table")
def group_rows_sum(vector: Vector) -> None:
    draft_of(vector).groups[1].rows -= 1


@lie("payload", "group without rows")
def group_without_rows(vector: Vector) -> None:
    draft_of(vector).groups.append(DraftGroup(0, 0, []))


@lie("payload", "groups' rows wrap around 2^32 to the right sum")
def group_rows_wrap(vector: Vector) -> None:
    groups = draft_of(vector).groups
    groups[0].rows += (1 << 32) - 3
    groups[1].rows += 3


@lie("payload", "stream_mask has bit 11 set")
def stream_mask_unknown(vector: Vector) -> None:
    draft_of(vector).groups[0].stream_mask |= 1 << 11


@lie("payload", "stream_mask names a stream that no row contributes to")
def stream_mask_empty_stream(vector: Vector) -> None:
    group = draft_of(vector).groups[0]
    group.stream_mask |= 1 << 10
    group.frames.append(DraftFrame(0, b"", b""))


@lie("payload", "stream_mask lacks a stream that rows contribute to")
def stream_mask_lacks_stream(vector: Vector) -> None:
    group = draft_of(vector).groups[0]
    assert group.stream_mask & 1
    group.stream_mask ^= 1
    del group.frames[0]


@lie("payload", "unknown outer codec 2", code="unsupported")
def frame_outer_unknown(vector: Vector) -> None:
    frame_of(vector, 0, 0).outer = 2


@lie("payload", "stored frame whose two sizes differ")
def frame_stored_sizes(vector: Vector) -> None:
    frame = frame_of(vector, 1, 10)
    frame.stored += b"\0"


@lie("payload", "inner_size of a frame is not what its rows contribute")
def frame_inner_size(vector: Vector) -> None:
    frame = frame_of(vector, 0, 1)
    frame.inner += bytes(8)
    frame.stored = zstd(frame.inner)


@lie("payload", "inner_size of a frame is 2^32 - 1", "resource_exhausted", ("corruption",))
def frame_inner_size_huge(vector: Vector) -> None:
    frame_of(vector, 0, 1).inner_size = (1 << 32) - 1


@lie("payload", "dense_size and frame of 2^26 + 1 bytes", "resource_exhausted", ("corruption",))
def frame_inner_size_over_limit(vector: Vector) -> None:
    """The sizes add up; a reader that decodes before it looks at limits allocates 64 MiB."""
    frame = frame_of(vector, 1, 10)
    row_of(vector, F_SNAPPY)["dense_size"] += (1 << 26) + 1 - len(frame.inner)
    frame.inner_size = (1 << 26) + 1
    frame.outer, frame.stored = 1, zstd(bytes((1 << 26) + 1))


@lie("payload", "frames of one group in another order than the streams")
def frames_out_of_order(vector: Vector) -> None:
    frames = draft_of(vector).groups[0].frames
    frames[0], frames[1] = frames[1], frames[0]


# Fields of rows.


@lie("payload", "gap leads past the plan's last chunk")
def row_gap_beyond_plan(vector: Vector) -> None:
    draft_of(vector).rows[-1]["gap"] = 1


@lie("payload", "gap 2^32 - 1, which wraps to the chunk before in 32 bits")
def row_gap_wraps(vector: Vector) -> None:
    draft_of(vector).rows[1]["gap"] = (1 << 32) - 1


@lie("payload", "encoding 0", code="unsupported")
def row_encoding_zero(vector: Vector) -> None:
    row_of(vector, A_SPARSE)["encoding"] = 0


@lie("payload", "encoding 7", code="unsupported")
def row_encoding_unknown(vector: Vector) -> None:
    row_of(vector, D_RAW)["encoding"] = 7


@lie("payload", "low_bits 25")
def row_low_bits_over(vector: Vector) -> None:
    row_of(vector, A_SPARSE)["low_bits"] = 25


@lie("payload", "low_bits 255")
def row_low_bits_huge(vector: Vector) -> None:
    row_of(vector, A_SPARSE)["low_bits"] = 255


@lie("payload", "low_bits in a row of encoding raw")
def row_low_bits_of_raw(vector: Vector) -> None:
    row_of(vector, D_RAW)["low_bits"] = 1


@lie("payload", "low_bits in a row of encoding planes")
def row_low_bits_of_planes(vector: Vector) -> None:
    row_of(vector, C_PLANES)["low_bits"] = 3


@lie("payload", "plane_mask names plane 1 of elements of one byte")
def row_plane_beyond_width(vector: Vector) -> None:
    row = row_of(vector, B_SPARSE)
    group = draft_of(vector).groups[0]
    row["plane_mask"] |= 2
    frame = frame_of(vector, 0, 3)
    frame.inner += bytes(row["change_count"])
    frame.stored = zstd(frame.inner)
    assert group.stream_mask >> 3 & 1


@lie("payload", "plane_mask in a row of encoding raw")
def row_plane_mask_of_raw(vector: Vector) -> None:
    row_of(vector, D_RAW)["plane_mask"] = 1
    frame = frame_of(vector, 1, 2)
    frame.inner += bytes(6)
    frame.stored = zstd(frame.inner)


@lie("payload", "constant for a plane that is stored")
def row_constant_of_stored_plane(vector: Vector) -> None:
    row_of(vector, A_SPARSE)["constants"] = 0x55


@lie("payload", "constant for plane 4 of elements of 4 bytes")
def row_constant_beyond_width(vector: Vector) -> None:
    row_of(vector, C_PLANES)["constants"] = 1 << 32


@lie("payload", "constant in a row of encoding snappy")
def row_constant_of_dense(vector: Vector) -> None:
    row_of(vector, F_SNAPPY)["constants"] = 1


@lie("payload", "change_count 0")
def row_change_count_zero(vector: Vector) -> None:
    row_of(vector, D_RAW)["change_count"] = 0


@lie("payload", "change_count above the chunk's count of elements")
def row_change_count_over(vector: Vector) -> None:
    row_of(vector, C_PLANES)["change_count"] = 13


@lie("payload", "change_count 2^32 - 1 in a sparse row")
def row_change_count_huge(vector: Vector) -> None:
    row_of(vector, A_SPARSE)["change_count"] = (1 << 32) - 1


@lie("payload", "change_count of a raw row is less than how many elements differ")
def row_change_count_of_raw(vector: Vector) -> None:
    row_of(vector, D_RAW)["change_count"] -= 1


@lie("payload", "change_count of a planes row is not how many elements differ")
def row_change_count_of_planes(vector: Vector) -> None:
    row_of(vector, C_PLANES)["change_count"] -= 1


@lie("payload", "dense_size in a sparse row")
def row_dense_size_of_sparse(vector: Vector) -> None:
    row_of(vector, A_SPARSE)["dense_size"] = 8
    group = draft_of(vector).groups[0]
    group.stream_mask |= 1 << 10
    group.frames.append(DraftFrame(0, bytes(8), bytes(8)))


@lie("payload", "dense_size of a snappy row is 0")
def row_dense_size_zero(vector: Vector) -> None:
    row = row_of(vector, F_SNAPPY)
    frame = frame_of(vector, 1, 10)
    begin = row_of(vector, D_RAW)["dense_size"]
    frame.inner = frame.inner[:begin] + frame.inner[begin + row["dense_size"] :]
    frame.stored = frame.inner
    row["dense_size"] = 0


@lie("payload", "dense_size of a snappy row is larger than the chunk, though the block is good")
def row_dense_size_over_chunk(vector: Vector) -> None:
    row, frame = row_of(vector, F_SNAPPY), frame_of(vector, 1, 10)
    begin = row_of(vector, D_RAW)["dense_size"]
    end = begin + row["dense_size"]
    mask = snappy_block.decode(frame.inner[begin:end], row["inner_size"])
    block = varint(len(mask)) + b"\xf0" + bytes([len(mask) - 1]) + mask
    frame.inner = frame.stored = frame.inner[:begin] + block + frame.inner[end:]
    row["dense_size"] = len(block)


@lie("payload", "dense_size of a raw row is one less than its chunk")
def row_dense_size_of_raw(vector: Vector) -> None:
    row_of(vector, D_RAW)["dense_size"] -= 1
    frame = frame_of(vector, 1, 10)
    frame.inner = frame.stored = frame.inner[1:]


@lie("payload", "inner_size in a planes row")
def row_inner_size_of_planes(vector: Vector) -> None:
    row_of(vector, C_PLANES)["inner_size"] = 48


@lie("payload", "inner_size of an lz4 row is one more than its chunk")
def row_inner_size_over(vector: Vector) -> None:
    row_of(vector, G_LZ4)["inner_size"] += 1


@lie("payload", "inner_size of a snappy row is 2^32 - 1")
def row_inner_size_huge(vector: Vector) -> None:
    row_of(vector, F_SNAPPY)["inner_size"] = (1 << 32) - 1


@lie("payload", "touched in a raw row")
def row_touched_of_raw(vector: Vector) -> None:
    row_of(vector, D_RAW)["touched"] = 1


# Digests.


def _shift(vector: Vector, row: int, name: str, lane: int, by: int) -> None:
    digest = list(row_of(vector, row)[name])
    digest[lane] = (digest[lane] + by) % (1 << 64)
    row_of(vector, row)[name] = tuple(digest)


@lie("payload", "before and after of a row are off by the same", also=("version_mismatch",))
def digest_before_and_after(vector: Vector) -> None:
    _shift(vector, A_SPARSE, "before", 0, 1)
    _shift(vector, A_SPARSE, "after", 0, 1)


@lie("payload", "the same in lane 1 of a raw row", also=("version_mismatch",))
def digest_before_lane_1_of_raw(vector: Vector) -> None:
    _shift(vector, D_RAW, "before", 1, 1 << 63)
    _shift(vector, D_RAW, "after", 1, 1 << 63)


@lie("payload", "after of two rows are off by opposite amounts, so that the sums agree")
def digest_after(vector: Vector) -> None:
    _shift(vector, A_SPARSE, "after", 0, 5)
    _shift(vector, F_SNAPPY, "after", 0, -5)


@lie("payload", "after of a raw row is off in lane 1, and another row makes up for it")
def digest_after_of_raw(vector: Vector) -> None:
    _shift(vector, D_RAW, "after", 1, 1 << 40)
    _shift(vector, G_LZ4, "after", 1, -(1 << 40))


@lie("payload", "lanes of after are exchanged in a row with equal before")
def digest_lanes_exchanged(vector: Vector) -> None:
    row = row_of(vector, C_PLANES)
    old, row["after"] = row["after"], row["after"][::-1]
    for lane in (0, 1):
        _shift(vector, H_ZSTD, "after", lane, old[lane] - row["after"][lane])


@lie("payload", "touched of a row is off by one", also=("version_mismatch",))
def digest_touched(vector: Vector) -> None:
    row_of(vector, A_SPARSE)["touched"] += 1


@lie("manifest", "the rows' digests do not add up to the model's")
def digest_sum(vector: Vector) -> None:
    _shift(vector, B_SPARSE, "after", 1, 1)


@lie("payload", "both payloads hold a row of chunk 0", start=two_owners)
def chunk_in_two_payloads(vector: Vector) -> None:
    """Both rows are truthful; applied twice, the XOR would undo itself."""
    vector.payloads[1] = vector.payloads[0]
    base = vector.computed["base_digest"]
    rows = draft_of(vector).rows
    lanes = []
    for lane in (0, 1):
        change = 2 * (rows[0]["after"][lane] - rows[0]["before"][lane])
        lanes.append((int(base[16 * lane : 16 * lane + 16], 16) + change) % (1 << 64))
    vector.manifest["target_digest"] = f"{lanes[0]:016x}{lanes[1]:016x}"


@lie("payload", "rows in descending order of chunks: the second gap is -2", start=two_groups)
def rows_descend(vector: Vector) -> None:
    """All else agrees, for a reader that lets the chunk number wrap around 2^32."""
    draft = draft_of(vector)
    draft.rows.reverse()
    draft.groups.reverse()
    draft.rows[0]["gap"], draft.rows[1]["gap"] = 1, (1 << 32) - 2


@lie("payload", "SHA-256 in the manifest is that of other bytes")
def payload_hash(vector: Vector) -> None:
    vector.entries[0] = {"sha256": hashlib.sha256(b"other").hexdigest()}
    digits = vector.entries[0]["sha256"][:16]
    vector.entries[0]["object"] = f"golden/payloads/0000000002/00000-of-00001-{digits}"


@lie("payload", "size in the manifest is one byte more than the object has")
def payload_size(vector: Vector) -> None:
    vector.entries[0] = {"size": len(serialize(draft_of(vector))) + 1}
