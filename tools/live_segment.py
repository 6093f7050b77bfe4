#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a segment of live weights by docs/protocol.md, section 6, and nothing else: an independent
view of what engines see, for the tests and the demo."""

import json
import pathlib
import struct

PHASES = ("loading", "serving", "applying", "poisoned", "pending", "due")


class Segment:
    def __init__(self, name):
        self.path = pathlib.Path("/dev/shm") / f"segue-{name}"

    def _read(self, offset, size):
        with open(self.path, "rb") as file:
            file.seek(offset)
            data = file.read(size)
        assert len(data) == size, "the segment ends too early"
        return data

    def _word(self, offset):
        return struct.unpack("<I", self._read(offset, 4))[0]

    def gate_is_closed(self):
        return self._word(64) == 1

    def phase(self):
        return PHASES[self._word(192)]

    def version(self):
        return struct.unpack("<Q", self._read(208, 8))[0]

    def tensors(self):
        """{name: bytes} of every tensor."""
        magic, version = struct.unpack("<8sI", self._read(0, 12))
        assert magic == b"SEGUELIV" and version == 1
        plan_offset, plan_size, offsets_offset = struct.unpack("<QQQ", self._read(24, 24))
        specs = read_plan(self._read(plan_offset, plan_size))
        offsets = struct.unpack(f"<{len(specs)}Q", self._read(offsets_offset, 8 * len(specs)))
        return {name: self._read(offset, size) for (name, size), offset in zip(specs, offsets)}

    def remove(self):
        self.path.unlink(missing_ok=True)


# Bits of each dtype code of docs/format.md, section 1.
DTYPE_BITS = (0, 8, 4, 6, 6, 8, 8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64)


def read_plan(data):
    """[(name, size)] of a plan object (docs/format.md, section 2)."""
    assert data[:8] == b"SEGUEPLN"
    count = struct.unpack_from("<Q", data, 16)[0]
    place = 24
    specs = []
    for _ in range(count):
        dtype, rank, name_size = struct.unpack_from("<BBH", data, place)
        place += 4
        elements = 1
        for dim in struct.unpack_from(f"<{rank}Q", data, place):
            elements *= dim
        place += 8 * rank
        name = data[place:place + name_size].decode()
        place += name_size
        specs.append((name, elements * DTYPE_BITS[dtype] // 8))
    assert place == len(data)
    return specs


def read_checkpoint(directory):
    """{name: bytes} of every tensor of the checkpoint's safetensors files."""
    tensors = {}
    for path in sorted(pathlib.Path(directory).glob("*.safetensors")):
        data = path.read_bytes()
        size = struct.unpack_from("<Q", data)[0]
        header = json.loads(data[8:8 + size])
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                tensors[name] = data[8 + size + begin:8 + size + end]
    return tensors
