# SPDX-License-Identifier: Apache-2.0
"""Lies in the streams: positions, planes, outer frames, and the blocks of the dense codecs."""

import numpy as np

from segue_reference.encode import elias_fano, zstd
from segue_reference.writers import ZstdFields, snappy_block, varint, zstd_frame

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
)
from .invalid_payload import SKIPPABLE
from .scenario import Vector

LOW, HIGH, PLANE_0, PLANE_1, DENSE = 0, 1, 2, 3, 10

# The first sparse row: 96 elements of 2 bytes, every 7th changed, low_bits 2.
A_POSITIONS = list(range(0, 96, 7))
A_COUNT = 96


def set_inner(vector: Vector, group: int, stream: int, inner: bytes) -> None:
    """Other contents of a frame, under the outer codec that it has."""
    frame = frame_of(vector, group, stream)
    frame.inner = inner
    frame.stored = zstd(inner) if frame.outer else inner


def set_positions(vector: Vector, positions: list[int]) -> None:
    """Other positions for the first row, its other fields as they are."""
    low, high = elias_fano(positions, A_COUNT, row_of(vector, A_SPARSE)["low_bits"])
    for stream, part in ((LOW, low), (HIGH, high)):
        inner = frame_of(vector, 0, stream).inner
        set_inner(vector, 0, stream, part + inner[len(part) :])


def flip_bit(data: bytes, bit: int) -> bytes:
    out = bytearray(data)
    out[bit // 8] ^= 1 << (bit % 8)
    return bytes(out)


# Positions.


@lie("payload", "high has one bit less than change_count")
def high_lacks_a_one(vector: Vector) -> None:
    inner = frame_of(vector, 0, HIGH).inner
    assert inner[0] & 1
    set_inner(vector, 0, HIGH, flip_bit(inner, 0))


@lie("payload", "high has one bit more than change_count, within its length")
def high_has_a_one_more(vector: Vector) -> None:
    inner = frame_of(vector, 0, HIGH).inner
    bits = np.unpackbits(np.frombuffer(inner[:8], dtype=np.uint8), bitorder="little")
    set_inner(vector, 0, HIGH, flip_bit(inner, int(np.flatnonzero(bits == 0)[0])))


@lie("payload", "high has one bit more than change_count, in its padding")
def high_padding(vector: Vector) -> None:
    set_inner(vector, 0, HIGH, flip_bit(frame_of(vector, 0, HIGH).inner, 63))


@lie("payload", "last bit of high moved into the padding: a position beyond the chunk")
def high_last_in_padding(vector: Vector) -> None:
    inner = frame_of(vector, 0, HIGH).inner
    bits = np.unpackbits(np.frombuffer(inner[:8], dtype=np.uint8), bitorder="little")
    last = int(np.flatnonzero(bits)[-1])
    set_inner(vector, 0, HIGH, flip_bit(flip_bit(inner, last), 63))


@lie("payload", "position equal to the chunk's count of elements")
def position_beyond_chunk(vector: Vector) -> None:
    """Row b has 100 elements and low_bits 3: bucket 12 holds 96 to 103, and 100 is too many."""
    row = row_of(vector, B_SPARSE)
    positions = list(range(2, 100, 9))[:-1] + [100]
    low, high = elias_fano(positions, 101, row["low_bits"])
    for stream, part in ((LOW, low), (HIGH, high)):
        inner = frame_of(vector, 0, stream).inner
        set_inner(vector, 0, stream, inner[: -len(part)] + part)


@lie("payload", "the same position twice")
def position_twice(vector: Vector) -> None:
    set_positions(vector, A_POSITIONS[:1] + A_POSITIONS[:1] + A_POSITIONS[2:])


@lie("payload", "two positions of one bucket in descending order")
def positions_descend(vector: Vector) -> None:
    set_positions(vector, [2, 1] + A_POSITIONS[2:])


@lie("payload", "padding bit of low is 1")
def low_padding(vector: Vector) -> None:
    inner = frame_of(vector, 0, LOW).inner
    set_inner(vector, 0, LOW, flip_bit(inner, 63))


@lie("payload", "low bits differ: other elements than touched and after speak of")
def low_bit_flipped(vector: Vector) -> None:
    """The positions still ascend; what sees it are the digests."""
    set_positions(vector, [1] + A_POSITIONS[1:])


# Planes.


@lie("payload", "mask of the first changed element is 0 in every plane")
def mask_zero(vector: Vector) -> None:
    for stream in (PLANE_0, PLANE_1):
        inner = frame_of(vector, 0, stream).inner
        set_inner(vector, 0, stream, b"\0" + inner[1:])


@lie("payload", "every plane elided with constant 0: all masks are 0")
def mask_zero_by_constants(vector: Vector) -> None:
    row = row_of(vector, B_SPARSE)
    row["plane_mask"] = row["constants"] = 0
    inner = frame_of(vector, 0, PLANE_0).inner
    set_inner(vector, 0, PLANE_0, inner[: -row["change_count"]])


@lie("payload", "planes of which every one is elided with constant 0: nothing changes")
def planes_zero_by_constants(vector: Vector) -> None:
    row = row_of(vector, C_PLANES)
    row["plane_mask"] = row["constants"] = 0
    group = draft_of(vector).groups[1]
    group.frames = group.frames[-1:]
    group.stream_mask = 1 << DENSE


@lie("payload", "one bit of a stored plane is flipped")
def plane_bit_flipped(vector: Vector) -> None:
    inner = frame_of(vector, 1, PLANE_0).inner
    set_inner(vector, 1, PLANE_0, flip_bit(inner, 13))


@lie("payload", "one bit of a raw chunk is flipped")
def raw_bit_flipped(vector: Vector) -> None:
    assert row_of(vector, D_RAW)["dense_size"] == 48
    set_inner(vector, 1, DENSE, flip_bit(frame_of(vector, 1, DENSE).inner, 100))


# Outer frames.


def _replace_frame(vector: Vector, fields: ZstdFields) -> None:
    frame = frame_of(vector, 0, HIGH)
    frame.stored = zstd_frame(frame.inner, fields)


@lie("payload", "outer Zstd frame without checksum")
def outer_without_checksum(vector: Vector) -> None:
    _replace_frame(vector, ZstdFields(checksum=False))


@lie("payload", "outer Zstd frame with a wrong checksum")
def outer_checksum(vector: Vector) -> None:
    _replace_frame(vector, ZstdFields(damage_checksum=True))


@lie("payload", "outer Zstd frame with a window of 2^24", "resource_exhausted", ("corruption",))
def outer_window(vector: Vector) -> None:
    _replace_frame(vector, ZstdFields(window_log=24))


@lie("payload", "outer Zstd frame with dictionary 7")
def outer_dictionary(vector: Vector) -> None:
    _replace_frame(vector, ZstdFields(dictionary=7))


@lie("payload", "content size of an outer frame is 2^60; its window is small")
def outer_content_size_huge(vector: Vector) -> None:
    _replace_frame(vector, ZstdFields(content_size=1 << 60, window_log=17))


@lie("payload", "outer frame decodes to 8 bytes more than inner_size, and says so")
def outer_decodes_to_more(vector: Vector) -> None:
    frame = frame_of(vector, 0, HIGH)
    frame.stored = zstd(frame.inner + bytes(8))


@lie("payload", "outer frame decodes to 8 bytes less than its content size says")
def outer_decodes_to_less(vector: Vector) -> None:
    frame = frame_of(vector, 0, HIGH)
    fields = ZstdFields(content_size=len(frame.inner), window_log=17)
    frame.stored = zstd_frame(frame.inner[:-8], fields)


@lie("payload", "outer frame that decodes to 32 MiB although its content size is 16")
def outer_bomb(vector: Vector) -> None:
    """Run-length blocks of 128 KiB: 4 bytes each in the frame."""
    frame = frame_of(vector, 0, HIGH)
    fields = ZstdFields(content_size=len(frame.inner), window_log=17)
    head = zstd_frame(frame.inner, fields)[: -4 - len(frame.inner) - 3]
    block = ((128 << 10) << 3 | 2).to_bytes(3, "little") + b"\0"
    frame.stored = head + 256 * block + b"\3\0\0\0" + bytes(4)


@lie("payload", "outer frame without content size that decodes to 8 bytes more than inner_size")
def outer_runs_over(vector: Vector) -> None:
    frame = frame_of(vector, 0, HIGH)
    fields = ZstdFields(content_size=None, window_log=17)
    frame.stored = zstd_frame(frame.inner + bytes(8), fields)


@lie("payload", "outer frame without content size that decodes to 8 bytes less than inner_size")
def outer_ends_early(vector: Vector) -> None:
    frame = frame_of(vector, 0, HIGH)
    fields = ZstdFields(content_size=None, window_log=17)
    frame.stored = zstd_frame(frame.inner[:-8], fields)


@lie("payload", "skippable frame before an outer frame")
def outer_skippable_first(vector: Vector) -> None:
    frame = frame_of(vector, 0, HIGH)
    frame.stored = SKIPPABLE + frame.stored


@lie("payload", "outer frame made of two Zstd frames")
def outer_two_frames(vector: Vector) -> None:
    frame = frame_of(vector, 0, HIGH)
    frame.stored = zstd(frame.inner[:8]) + zstd(frame.inner[8:])


@lie("payload", "4 bytes after the end of an outer frame")
def outer_trailing_bytes(vector: Vector) -> None:
    frame_of(vector, 0, HIGH).stored += bytes(4)


@lie("payload", "outer frame ends inside its last block")
def outer_truncated(vector: Vector) -> None:
    frame = frame_of(vector, 0, HIGH)
    frame.stored = frame.stored[:-6]


# Blocks of the dense codecs.


def set_block(vector: Vector, row: int, block: bytes) -> None:
    """Another block for a dense row, with the sizes that belong to it."""
    dense = list(range(D_RAW, H_ZSTD + 1))
    sizes = [row_of(vector, r)["dense_size"] for r in dense]
    begin = sum(sizes[: dense.index(row)])
    inner = frame_of(vector, 1, DENSE).inner
    end = begin + sizes[dense.index(row)]
    set_inner(vector, 1, DENSE, inner[:begin] + block + inner[end:])
    row_of(vector, row)["dense_size"] = len(block)
    assert len(block) <= row_of(vector, row)["inner_size"]


def block_of(vector: Vector, row: int) -> bytes:
    begin = sum(row_of(vector, r)["dense_size"] for r in range(D_RAW, row))
    size = row_of(vector, row)["dense_size"]
    return frame_of(vector, 1, DENSE).inner[begin : begin + size]


@lie("payload", "Snappy block claims 4 GiB - 1")
def snappy_claims_4_gib(vector: Vector) -> None:
    block = block_of(vector, F_SNAPPY)
    assert block[0] == 80
    set_block(vector, F_SNAPPY, varint((1 << 32) - 1) + block[1:])


@lie("payload", "length in front of a Snappy block does not end")
def snappy_length_endless(vector: Vector) -> None:
    set_block(vector, F_SNAPPY, b"\xff" * 12)


@lie("payload", "Snappy block decodes to one byte less, and says so")
def snappy_short(vector: Vector) -> None:
    set_block(vector, F_SNAPPY, snappy_block(bytes(79)))


@lie("payload", "Snappy block decodes to less than the length in its front")
def snappy_ends_early(vector: Vector) -> None:
    set_block(vector, F_SNAPPY, varint(80) + b"\x0cabcd")


@lie("payload", "Snappy block decodes to more than the length in its front")
def snappy_runs_over(vector: Vector) -> None:
    set_block(vector, F_SNAPPY, varint(80) + b"\x00\x00" + 2 * b"\xfe\x01\x00")


@lie("payload", "Snappy copy with offset 0")
def snappy_offset_zero(vector: Vector) -> None:
    set_block(vector, F_SNAPPY, varint(80) + b"\x3c" + bytes(16) + b"\xfe\x00\x00")


@lie("payload", "Snappy copy from before the start")
def snappy_before_start(vector: Vector) -> None:
    set_block(vector, F_SNAPPY, varint(80) + b"\x3c" + bytes(16) + b"\xfe\x11\x00")


@lie("payload", "Snappy literal runs past the block")
def snappy_literal_truncated(vector: Vector) -> None:
    set_block(vector, F_SNAPPY, varint(80) + b"\xf0\x4f" + bytes(70))


@lie("payload", "Snappy literal of 2^32 bytes")
def snappy_literal_huge(vector: Vector) -> None:
    set_block(vector, F_SNAPPY, varint(80) + b"\xfc\xff\xff\xff\xff" + bytes(70))


@lie("payload", "LZ4 match with offset 0")
def lz4_offset_zero(vector: Vector) -> None:
    set_block(vector, G_LZ4, b"\x4fabcd\x00\x00\x29" + b"\xc0" + bytes(12))


@lie("payload", "LZ4 match from before the start")
def lz4_before_start(vector: Vector) -> None:
    set_block(vector, G_LZ4, b"\x4fabcd\x05\x00\x29" + b"\xc0" + bytes(12))


@lie("payload", "LZ4 block ends inside its literals")
def lz4_truncated(vector: Vector) -> None:
    set_block(vector, G_LZ4, block_of(vector, G_LZ4)[:-1])


def lz4_zeros(size: int) -> bytes:
    """A literal, a match that repeats it, and the 5 literals that an LZ4 block ends with."""
    return b"\x1f\0\1\0" + bytes([size - 6 - 19]) + b"\x50" + bytes(5)


@lie("payload", "LZ4 block decodes to one byte more than the chunk")
def lz4_runs_over(vector: Vector) -> None:
    set_block(vector, G_LZ4, lz4_zeros(81))


@lie("payload", "LZ4 block decodes to one byte less than the chunk")
def lz4_short(vector: Vector) -> None:
    set_block(vector, G_LZ4, lz4_zeros(79))


@lie("payload", "LZ4 length that continues past the block")
def lz4_length_endless(vector: Vector) -> None:
    set_block(vector, G_LZ4, b"\xf0" + b"\xff" * 40)


@lie("payload", "inner zstd row is not a Zstd frame")
def zstd_garbage(vector: Vector) -> None:
    set_block(vector, H_ZSTD, bytes(20))


@lie("payload", "inner Zstd frame decodes to one byte more than the chunk")
def zstd_runs_over(vector: Vector) -> None:
    fields = ZstdFields(content_size=None, window_log=17, run_length=True)
    set_block(vector, H_ZSTD, zstd_frame(bytes(61), fields))


@lie("payload", "inner Zstd frame decodes to one byte less than the chunk")
def zstd_short(vector: Vector) -> None:
    fields = ZstdFields(content_size=None, window_log=17, run_length=True)
    set_block(vector, H_ZSTD, zstd_frame(bytes(59), fields))


@lie("payload", "inner Zstd frame with a window of 2^24", "resource_exhausted", ("corruption",))
def zstd_window(vector: Vector) -> None:
    set_block(vector, H_ZSTD, zstd_frame(bytes(60), ZstdFields(window_log=24, run_length=True)))


@lie("payload", "inner Zstd frame with a wrong checksum")
def zstd_checksum(vector: Vector) -> None:
    block = block_of(vector, H_ZSTD)
    set_block(vector, H_ZSTD, block[:-1] + bytes([block[-1] ^ 1]))


@lie("payload", "skippable frame before an inner Zstd frame")
def zstd_skippable_first(vector: Vector) -> None:
    set_block(vector, H_ZSTD, SKIPPABLE + block_of(vector, H_ZSTD))


@lie("payload", "bytes after an inner Zstd frame")
def zstd_trailing_bytes(vector: Vector) -> None:
    set_block(vector, H_ZSTD, block_of(vector, H_ZSTD) + b"\0")
