# SPDX-License-Identifier: Apache-2.0
"""Small compressors for test vectors: Snappy, LZ4, and Zstd frames with hand-chosen headers.

They aim at valid and telling output (every kind of copy, frames that differ in one field), not at
size. Zstd frames here have raw or run-length blocks only, so their bytes depend on no library.
"""

from dataclasses import dataclass

MASK64 = (1 << 64) - 1
PRIME1, PRIME2, PRIME3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
PRIME4, PRIME5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotate(x: int, r: int) -> int:
    return (x << r | x >> (64 - r)) & MASK64


def _round(lane: int, word: int) -> int:
    return _rotate((lane + word * PRIME2) & MASK64, 31) * PRIME1 & MASK64


def _xxh64_stripes(data: bytes) -> int:
    """The state after all whole stripes of 32 bytes."""
    lanes = [(PRIME1 + PRIME2) & MASK64, PRIME2, 0, -PRIME1 & MASK64]
    for i in range(0, len(data) - 31, 32):
        for lane in range(4):
            word = int.from_bytes(data[i + 8 * lane : i + 8 * lane + 8], "little")
            lanes[lane] = _round(lanes[lane], word)
    state = sum(_rotate(lane, r) for lane, r in zip(lanes, (1, 7, 12, 18))) & MASK64
    for lane in lanes:
        state = ((state ^ _round(0, lane)) * PRIME1 + PRIME4) & MASK64
    return state


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0; Zstd stores its low 32 bits as checksum."""
    state = _xxh64_stripes(data) if len(data) >= 32 else PRIME5
    state = (state + len(data)) & MASK64
    i = len(data) // 32 * 32
    while i + 8 <= len(data):
        word = _round(0, int.from_bytes(data[i : i + 8], "little"))
        state = (_rotate(state ^ word, 27) * PRIME1 + PRIME4) & MASK64
        i += 8
    if i + 4 <= len(data):
        word = int.from_bytes(data[i : i + 4], "little")
        state = (_rotate(state ^ word * PRIME1 & MASK64, 23) * PRIME2 + PRIME3) & MASK64
        i += 4
    for byte in data[i:]:
        state = _rotate(state ^ byte * PRIME5 & MASK64, 11) * PRIME1 & MASK64
    state = (state ^ state >> 33) * PRIME2 & MASK64
    state = (state ^ state >> 29) * PRIME3 & MASK64
    return state ^ state >> 32


@dataclass(frozen=True)
class ZstdFields:
    """Fields of a hand-made frame. `content_size` -1 is the true one, None is absent. Without a
    `window_log` the frame is a single segment, so its window is its content size."""

    content_size: int | None = -1
    checksum: bool = True
    window_log: int | None = None
    dictionary: int | None = None
    run_length: bool = False
    damage_checksum: bool = False


def _zstd_header(size: int, fields: ZstdFields) -> bytes:
    content_size = size if fields.content_size == -1 else fields.content_size
    single = fields.window_log is None
    assert not single or content_size is not None
    flags = (0x20 if single else 0) | (0x04 if fields.checksum else 0)
    flags |= 0xC0 if content_size is not None else 0
    flags |= 3 if fields.dictionary is not None else 0
    header = (0xFD2FB528).to_bytes(4, "little") + bytes([flags])
    if not single:
        header += bytes([(fields.window_log - 10) << 3])
    if fields.dictionary is not None:
        header += fields.dictionary.to_bytes(4, "little")
    if content_size is not None:
        header += content_size.to_bytes(8, "little")
    return header


def zstd_frame(data: bytes, fields: ZstdFields = ZstdFields()) -> bytes:
    """One frame of raw blocks, or of run-length blocks where `data` repeats one byte."""
    out = bytearray(_zstd_header(len(data), fields))
    pieces = [data[i : i + (128 << 10)] for i in range(0, len(data), 128 << 10)] or [b""]
    for i, piece in enumerate(pieces):
        kind = 1 if fields.run_length else 0
        last = i == len(pieces) - 1
        out += (len(piece) << 3 | kind << 1 | last).to_bytes(3, "little")
        out += piece[:1] if fields.run_length else piece
    if fields.checksum:
        checksum = xxh64(data) ^ (1 if fields.damage_checksum else 0)
        out += (checksum & 0xFFFFFFFF).to_bytes(4, "little")
    return bytes(out)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _matches(data: bytes, end: int) -> list[tuple[int, int, int, int]]:
    """Greedy parse: (begin of literals, their end, match offset, match length), matches of 4 bytes
    or more that end at or before `end`; the last entry is literals with match length 0."""
    seen: dict[bytes, int] = {}
    result = []
    anchor = i = 0
    while i + 4 <= end:
        key = data[i : i + 4]
        earlier = seen.get(key)
        seen[key] = i
        if earlier is None or i - earlier > 0xFFFF:
            i += 1
            continue
        length = 4
        while i + length < end and data[earlier + length] == data[i + length]:
            length += 1
        result.append((anchor, i, i - earlier, length))
        i += length
        anchor = i
    result.append((anchor, len(data), 0, 0))
    return result


def _snappy_literal(data: bytes) -> bytes:
    size = len(data) - 1
    if not data:
        return b""
    if size < 60:
        return bytes([size << 2]) + data
    width = (size.bit_length() + 7) // 8
    return bytes([(59 + width) << 2]) + size.to_bytes(width, "little") + data


def _snappy_copy(offset: int, length: int) -> bytes:
    out = bytearray()
    while length > 0:
        part = min(length, 64)
        if 4 <= part <= 11 and offset < 2048:
            out += bytes([offset >> 8 << 5 | (part - 4) << 2 | 1, offset & 0xFF])
        else:
            out += bytes([(part - 1) << 2 | 2]) + offset.to_bytes(2, "little")
        length -= part
    return bytes(out)


def snappy_block(data: bytes) -> bytes:
    out = bytearray(varint(len(data)))
    for begin, end, offset, length in _matches(data, len(data)):
        out += _snappy_literal(data[begin:end]) + _snappy_copy(offset, length)
    return bytes(out)


def _lz4_length(value: int) -> bytes:
    """The bytes that continue a nibble of 15."""
    return b"\xff" * ((value - 15) // 255) + bytes([(value - 15) % 255]) if value >= 15 else b""


def lz4_block(data: bytes) -> bytes:
    """Obeys LZ4's end-of-block rules: no match reaches into the last 12 bytes."""
    out = bytearray()
    parse = _matches(data, max(0, len(data) - 12))
    for begin, end, offset, length in parse:
        literals = end - begin
        more = length - 4 if length else 0
        out.append(min(literals, 15) << 4 | min(more, 15))
        out += _lz4_length(literals) + data[begin:end]
        if length:
            out += offset.to_bytes(2, "little") + _lz4_length(more)
    return bytes(out)
