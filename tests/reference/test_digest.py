# SPDX-License-Identifier: Apache-2.0
"""The linear digest: constants, the formula written out slowly, and the algebra that Segue uses.

The constants were computed by `slow_digest`, which follows section 4 word by word in plain
integers and shares nothing with `segue_reference.digest`.
"""

import numpy as np
import pytest

from segue_reference import digest

MODULUS = 1 << 64


def slow_mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) % MODULUS
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % MODULUS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % MODULUS
    return x ^ (x >> 31)


def slow_digest(data: bytes, tensor: int, offset: int = 0) -> tuple[int, ...]:
    lanes = []
    for lane in (0, 1):
        total = 0
        for i in range(offset // 4, (offset + len(data) + 3) // 4):
            word = int.from_bytes(data[4 * i - offset : 4 * i - offset + 4], "little")
            word_key = (slow_mix(((lane + 1) << 32) | (i % 1024)) % (1 << 32)) | 1
            block_key = slow_mix((slow_mix((tensor << 1) | lane) + i // 1024) % MODULUS) | 1
            total += word * word_key * block_key
        lanes.append(total % MODULUS)
    return tuple(lanes)


def sample(size: int) -> bytes:
    return bytes(i * i % 251 for i in range(size))


VECTORS = [
    (b"", 0, "00000000000000000000000000000000"),
    (b"\1", 0, "a780d148258995b78f963c3f02cd442d"),
    (b"\1", 1, "dac1919b016b414d9680e20b9d14f915"),
    (b"abcde", 7, "ef268de8a4845274084b4c94b9a957e0"),
    (b"\xff" * 4096, 0, "9fe1a106af9af2566a51093e5405c664"),
    (bytes(4096) + b"\1", 0, "926f231faada7c47a0144c9dd423c999"),
    (sample(10001), 3, "0662fe98a0c662406a339054f10f1496"),
]


@pytest.mark.parametrize("data, tensor, text", VECTORS)
def test_vectors(data: bytes, tensor: int, text: str):
    assert digest.text(digest.digest_of(data, tensor)) == text
    assert digest.text(slow_digest(data, tensor)) == text
    assert digest.from_text(text) == digest.digest_of(data, tensor)


def test_keys():
    """`mix(0)` is the first output of SplitMix64 from seed 0, known from elsewhere."""
    assert digest.mix(0) == 0xE220A8397B1DCDAF
    keys = [int(digest.word_keys(lane)[j]) for lane in (0, 1) for j in (0, 1, 1023)]
    assert keys == [0xA3820139, 0xFD59956F, 0xF341B421, 0x7BCCB533, 0xE5949C49, 0xA7E6E035]
    assert digest.block_key(0, 0, 0) == 0xA706DD2F4D197E6F
    assert digest.block_key(1, 0, 0) == 0x5E41AB087439611F
    assert digest.block_key(0, 1, 5) == 0xAABF994EA27D26C1
    assert digest.block_key(1, 4_000_000, 1 << 34) == 0x571AE8E60A23D203


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 4095, 4096, 4097, 8192, 12289])
def test_agrees_with_slow_formula(size: int):
    for offset in (0, 4096, 1 << 40):
        assert digest.digest_of(sample(size), 5, offset) == slow_digest(sample(size), 5, offset)


def test_parts_add_up():
    data = sample(5 * 4096 + 77)
    parts = [digest.digest_of(data[i : i + 8192], 2, i) for i in range(0, len(data), 8192)]
    assert digest.total(parts) == digest.digest_of(data, 2)


def test_difference_is_sum_over_changed_words():
    base, target = bytearray(sample(9000)), bytearray(sample(9000))
    changed = {0: 0xFFFFFFFF, 7: 0, 1023: 1, 1024: 0x80000000, 2249: 0x01020304}
    expected = [0, 0]
    for word, value in changed.items():
        old = int.from_bytes(base[4 * word : 4 * word + 4], "little")
        target[4 * word : 4 * word + 4] = value.to_bytes(4, "little")
        for lane in (0, 1):
            word_key = int(digest.word_keys(lane)[word % 1024])
            change = (value - old) * word_key * digest.block_key(lane, 9, word // 1024)
            expected[lane] = (expected[lane] + change) % MODULUS
    before, after = digest.digest_of(bytes(base), 9), digest.digest_of(bytes(target), 9)
    assert digest.subtract(after, before) == tuple(expected)
    assert digest.add(before, tuple(expected)) == after


def test_every_flipped_bit_is_seen_in_both_lanes():
    data = sample(512)
    whole = digest.digest_of(data, 0)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << (bit % 8)
        other = digest.digest_of(bytes(flipped), 0)
        assert other[0] != whole[0] and other[1] != whole[1]


def test_place_matters():
    data = sample(4096)
    digests = {digest.digest_of(data, t, offset) for t in range(4) for offset in (0, 4096, 8192)}
    assert len(digests) == 12
    swapped = data[4:8] + data[:4] + data[8:]
    assert digest.digest_of(swapped, 0) != digest.digest_of(data, 0)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_touched_counts_changed_elements_alone(width: int):
    data = sample(4096 + 40)
    positions = np.array([0, 3, 4096 // width, len(data) // width - 1])
    alone = bytearray(len(data))
    for p in positions:
        alone[p * width : (p + 1) * width] = data[p * width : (p + 1) * width]
    expected = slow_digest(bytes(alone), 4, 4096)[0]
    assert digest.touched_of(data, positions, width, 4, 4096) == expected
