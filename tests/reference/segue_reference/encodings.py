# SPDX-License-Identifier: Apache-2.0
"""The chunk encodings of section 6: from a row and its parts of the streams to the target bytes."""

import numpy as np

from . import lz4_block, snappy_block, zstd_frame
from .errors import require
from .table import (
    LZ4,
    PLANES,
    RAW,
    SNAPPY,
    SPARSE,
    STREAM_DENSE,
    STREAM_HIGH,
    STREAM_LOW,
    STREAM_PLANES,
    Row,
)


def _bits(data: bytes) -> np.ndarray:
    """The bits of 64-bit little-endian words, least significant first: bit k is k mod 64 of word
    k / 64, which is the same as k mod 8 of byte k / 8."""
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")


def _low_parts(row: Row, data: bytes) -> np.ndarray:
    bits = _bits(data).astype(np.int64)
    used = row.change_count * row.low_bits
    padding_is_zero = not bits[used:].any()
    require(padding_is_zero, "payload", f"chunk {row.chunk}: padding of low bits is not 0")
    weights = np.int64(1) << np.arange(row.low_bits, dtype=np.int64)
    return bits[:used].reshape(row.change_count, row.low_bits) @ weights


def positions_of(row: Row, parts: dict[int, bytes]) -> np.ndarray:
    """Positions of the changed elements of a `sparse` row, by Elias and Fano."""
    where = f"chunk {row.chunk}"
    ones = np.flatnonzero(_bits(parts[STREAM_HIGH]))
    n = row.change_count
    require(len(ones) == n, "payload", f"{where}: {len(ones)} ones in high, expected {n}")
    positions = (ones - np.arange(n)) << row.low_bits
    positions |= _low_parts(row, parts.get(STREAM_LOW, b""))
    require(bool((np.diff(positions) > 0).all()), "payload", f"{where}: positions do not ascend")
    inside = bool(positions[-1] < row.place.element_count)
    require(inside, "payload", f"{where}: position beyond the chunk")
    return positions


def _plane_values(row: Row, parts: dict[int, bytes], count: int) -> np.ndarray:
    """`count` masks of `width` bytes, from stored planes and constants."""
    masks = np.empty((count, row.width), dtype=np.uint8)
    for plane in range(row.width):
        if row.stores_plane(plane):
            masks[:, plane] = np.frombuffer(parts[STREAM_PLANES + plane], dtype=np.uint8)
        else:
            masks[:, plane] = row.constant(plane)
    return masks


def _sparse_mask(row: Row, parts: dict[int, bytes]) -> bytes:
    positions = positions_of(row, parts)
    changed = _plane_values(row, parts, row.change_count)
    all_changed = bool(changed.any(axis=1).all())
    require(all_changed, "payload", f"chunk {row.chunk}: changed element with a mask of 0")
    masks = np.zeros((row.place.element_count, row.width), dtype=np.uint8)
    masks[positions] = changed
    return masks.tobytes()


def _mask(row: Row, parts: dict[int, bytes]) -> bytes:
    if row.encoding == SPARSE:
        return _sparse_mask(row, parts)
    if row.encoding == PLANES:
        return _plane_values(row, parts, row.place.element_count).tobytes()
    block = parts[STREAM_DENSE]
    if row.encoding == SNAPPY:
        return snappy_block.decode(block, row.inner_size)
    if row.encoding == LZ4:
        return lz4_block.decode(block, row.inner_size)
    return zstd_frame.decode(block, row.inner_size, "payload")


def xor(a: bytes, b: bytes) -> bytes:
    assert len(a) == len(b)
    return (np.frombuffer(a, dtype=np.uint8) ^ np.frombuffer(b, dtype=np.uint8)).tobytes()


def target_of(row: Row, parts: dict[int, bytes], base: bytes) -> bytes:
    """The chunk's bytes at the target, given its bytes at the base."""
    target = parts[STREAM_DENSE] if row.encoding == RAW else xor(base, _mask(row, parts))
    changed = np.frombuffer(xor(base, target), dtype=np.uint8).reshape(-1, row.width).any(axis=1)
    count = int(changed.sum())
    # A raw row may come from a writer that never saw the base, so its count is an upper bound.
    agrees = count <= row.change_count if row.encoding == RAW else count == row.change_count
    where, stated = f"chunk {row.chunk}", row.change_count
    require(agrees, "payload", f"{where}: {count} elements change, change_count is {stated}")
    return target
