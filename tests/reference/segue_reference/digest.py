# SPDX-License-Identifier: Apache-2.0
"""The linear digest of section 4.

A digest is a pair of lanes, each a sum modulo 2^64. numpy's uint64 arithmetic wraps, which is what
the formula asks for. Digests of parts add up, so everything here takes a part of a tensor that
begins at a block boundary.
"""

from functools import cache

import numpy as np

MODULUS = 1 << 64
BLOCK_SIZE = 4096
BLOCK_WORDS = 1024

Digest = tuple[int, int]
ZERO: Digest = (0, 0)


def mix(x: int) -> int:
    """The bit mixer of section 4 (one step of SplitMix64)."""
    x = (x + 0x9E3779B97F4A7C15) % MODULUS
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % MODULUS
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % MODULUS
    return x ^ (x >> 31)


@cache
def word_keys(lane: int) -> np.ndarray:
    """T[lane]: the keys of the 1024 words of a block, odd 32-bit numbers."""
    keys = [(mix(((lane + 1) << 32) | j) % (1 << 32)) | 1 for j in range(BLOCK_WORDS)]
    return np.array(keys, dtype=np.uint64)


def block_key(lane: int, tensor: int, block: int) -> int:
    """K[lane](tensor, block), an odd 64-bit number."""
    return mix((mix((tensor << 1) | lane) + block) % MODULUS) | 1


def digest_of(data: bytes, tensor: int, offset: int = 0) -> Digest:
    """Digest of the bytes of tensor number `tensor` that begin at `offset`, a block boundary."""
    assert offset % BLOCK_SIZE == 0
    padded = data + bytes(-len(data) % BLOCK_SIZE)
    blocks = np.frombuffer(padded, dtype="<u4").astype(np.uint64).reshape(-1, BLOCK_WORDS)
    lanes = []
    for lane in (0, 1):
        sums = (blocks * word_keys(lane)).sum(axis=1, dtype=np.uint64)
        first = offset // BLOCK_SIZE
        terms = (int(s) * block_key(lane, tensor, first + b) for b, s in enumerate(sums))
        lanes.append(sum(terms) % MODULUS)
    return lanes[0], lanes[1]


def add(a: Digest, b: Digest) -> Digest:
    return (a[0] + b[0]) % MODULUS, (a[1] + b[1]) % MODULUS


def subtract(a: Digest, b: Digest) -> Digest:
    return (a[0] - b[0]) % MODULUS, (a[1] - b[1]) % MODULUS


def total(digests) -> Digest:
    result = ZERO
    for digest in digests:
        result = add(result, digest)
    return result


def text(digest: Digest) -> str:
    return f"{digest[0]:016x}{digest[1]:016x}"


def from_text(digits: str) -> Digest:
    """The inverse of `text`; the caller has checked that these are 32 digits."""
    return int(digits[:16], 16), int(digits[16:], 16)


def touched_of(base: bytes, positions: np.ndarray, width: int, tensor: int, offset: int) -> int:
    """`touched` of section 5: lane 0 over the elements at `positions`; all else counts as zero."""
    elements = np.frombuffer(base, dtype=np.uint8).reshape(-1, width)
    alone = np.zeros_like(elements)
    alone[positions] = elements[positions]
    return digest_of(alone.tobytes(), tensor, offset)[0]
