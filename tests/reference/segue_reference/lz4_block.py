# SPDX-License-Identifier: Apache-2.0
"""Decoder of one LZ4 block, from lz4_Block_format.md.

A block is a run of sequences: literals, then a match; the last sequence has literals only. LZ4's
further end-of-block rules (the last 5 bytes are literals, the last match begins 12 bytes before the
end) bind compressors and are not checked here.
"""

from .errors import require
from .reader import Reader
from .snappy_block import copy_within

MATCH_LENGTH_MIN = 4


def _read_length(reader: Reader, nibble: int, bound: int) -> int:
    """A nibble of 15 is continued by bytes up to the first that is not 255."""
    length = nibble
    more = nibble == 15
    while more:
        byte = reader.u8("LZ4 length")
        length += byte
        more = byte == 255
        require(length <= bound + 255, reader.object_name, "LZ4 block decodes to more")
    return length


def decode(block: bytes, size: int, object_name: str = "payload") -> bytes:
    """Decodes a block to exactly `size` bytes."""
    reader = Reader(block, object_name)
    out = bytearray()
    while True:
        token = reader.u8("LZ4 token")
        literals = _read_length(reader, token >> 4, size)
        require(literals <= size - len(out), object_name, "LZ4 block decodes to more")
        out += reader.take(literals, "LZ4 literals")
        if reader.offset == len(block):
            break
        offset = reader.u16("LZ4 offset")
        require(0 < offset <= len(out), object_name, "LZ4 match from before the start")
        length = MATCH_LENGTH_MIN + _read_length(reader, token & 15, size)
        require(length <= size - len(out), object_name, "LZ4 block decodes to more")
        copy_within(out, offset, length)
    require(len(out) == size, object_name, "LZ4 block decodes to less")
    return bytes(out)
