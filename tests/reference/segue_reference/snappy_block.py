# SPDX-License-Identifier: Apache-2.0
"""Decoder of one raw Snappy block, from Snappy's format_description.txt."""

from .errors import require
from .reader import Reader


def _read_varint32(reader: Reader) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = reader.u8("Snappy length")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            require(value < 1 << 32, reader.object_name, "Snappy length over 32 bits")
            return value
    require(False, reader.object_name, "Snappy length over 32 bits")
    raise AssertionError


def _read_literal(reader: Reader, tag: int) -> bytes:
    length = tag >> 2
    if length >= 60:
        length = reader.uint(length - 59, "Snappy literal length")
    return reader.take(length + 1, "a Snappy literal")


def _read_copy(reader: Reader, tag: int) -> tuple[int, int]:
    """Gives offset and length of a copy; the kind is in the tag's low two bits."""
    if tag & 3 == 1:
        return (tag >> 5) << 8 | reader.u8("Snappy copy"), 4 + ((tag >> 2) & 7)
    return reader.uint(2 if tag & 3 == 2 else 4, "Snappy copy"), 1 + (tag >> 2)


def copy_within(out: bytearray, offset: int, length: int) -> None:
    """Appends `length` bytes from `offset` back; source and destination may overlap."""
    for _ in range(length):
        out.append(out[-offset])


def decode(block: bytes, size: int, object_name: str = "payload") -> bytes:
    """Decodes a block to exactly `size` bytes, the number that it must also claim in front."""
    reader = Reader(block, object_name)
    claimed = _read_varint32(reader)
    require(claimed == size, object_name, f"Snappy length {claimed}, expected {size}")
    out = bytearray()
    while reader.offset < len(block):
        tag = reader.u8("Snappy tag")
        if tag & 3 == 0:
            out += _read_literal(reader, tag)
        else:
            offset, length = _read_copy(reader, tag)
            require(0 < offset <= len(out), object_name, "Snappy copy from before the start")
            require(length <= size - len(out), object_name, "Snappy block decodes to more")
            copy_within(out, offset, length)
        require(len(out) <= size, object_name, "Snappy block decodes to more")
    require(len(out) == size, object_name, "Snappy block decodes to less")
    return bytes(out)
