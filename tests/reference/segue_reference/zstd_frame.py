# SPDX-License-Identifier: Apache-2.0
"""One Zstd frame, exactly (RFC 8878), with the restrictions that Segue puts on it.

The package `zstandard` undoes the compression. What the document restricts (one frame and nothing
else, window, dictionary, content size, checksum) is read from the frame itself beforehand, so that
no default of a library decides it and nothing is allocated from a number that a frame claims.
"""

from dataclasses import dataclass

import zstandard

from . import limits
from .errors import Refusal, limit, require
from .reader import Reader

MAGIC = 0xFD2FB528
BLOCK_SIZE_MAX = 128 << 10


@dataclass(frozen=True)
class FrameHeader:
    content_size: int | None
    window_size: int
    has_checksum: bool
    dictionary: int


def _read_header(reader: Reader) -> FrameHeader:
    name = reader.object_name
    require(reader.u32("Zstd magic") == MAGIC, name, "not a Zstd frame")
    flags = reader.u8("Zstd frame header")
    require(flags & 0x08 == 0, name, "reserved bit of a Zstd frame header is set")
    single_segment = bool(flags & 0x20)
    window = 0
    if not single_segment:
        descriptor = reader.u8("Zstd window")
        base = 1 << (10 + (descriptor >> 3))
        window = base + base // 8 * (descriptor & 7)
    dictionary = reader.uint((0, 1, 2, 4)[flags & 3], "Zstd dictionary number")
    size_bytes = (1 if single_segment else 0, 2, 4, 8)[flags >> 6]
    content_size = reader.uint(size_bytes, "Zstd content size") if size_bytes else None
    if size_bytes == 2:
        content_size += 256
    if single_segment:
        window = content_size
    return FrameHeader(content_size, window, bool(flags & 0x04), dictionary)


def _skip_blocks(reader: Reader, window: int) -> None:
    name = reader.object_name
    last = False
    while not last:
        header = reader.uint(3, "Zstd block header")
        last = bool(header & 1)
        kind, size = (header >> 1) & 3, header >> 3
        require(kind != 3, name, "reserved Zstd block type")
        require(size <= min(window, BLOCK_SIZE_MAX), name, "Zstd block larger than its maximum")
        reader.take(1 if kind == 1 else size, "a Zstd block")


def _inspect(data: bytes, object_name: str) -> FrameHeader:
    """Reads the frame's header and walks its blocks; refuses what is not exactly one frame."""
    reader = Reader(data, object_name)
    header = _read_header(reader)
    limit(header.window_size, limits.ZSTD_WINDOW, object_name, "Zstd window")
    require(header.dictionary == 0, object_name, "Zstd frame needs a dictionary")
    _skip_blocks(reader, header.window_size)
    if header.has_checksum:
        reader.take(4, "Zstd checksum")
    reader.end()
    return header


def decode(data: bytes, size: int, object_name: str, *, needs_checksum: bool = False) -> bytes:
    """Decodes one frame to exactly `size` bytes; a content size may be absent, not wrong."""
    header = _inspect(data, object_name)
    checked = header.has_checksum or not needs_checksum
    require(checked, object_name, "Zstd frame without checksum")
    if header.content_size is not None:
        agrees = header.content_size == size
        require(agrees, object_name, f"Zstd content size {header.content_size}, expected {size}")
    out = bytearray()
    try:
        source = zstandard.ZstdDecompressor(max_window_size=limits.ZSTD_WINDOW).stream_reader(data)
        while len(out) <= size and (part := source.read(size + 1 - len(out))):
            out += part
    except zstandard.ZstdError as error:
        raise Refusal(object_name, f"Zstd: {error}") from None
    require(len(out) == size, object_name, f"Zstd frame does not decode to {size} bytes")
    return bytes(out)
