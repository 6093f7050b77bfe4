# SPDX-License-Identifier: Apache-2.0
"""A cursor over bytes that reads little-endian integers and refuses to run past the end."""

from .errors import require


class Reader:
    """Reads one object front to back; `object_name` goes into refusals."""

    def __init__(self, data: bytes, object_name: str):
        self.data = data
        self.object_name = object_name
        self.offset = 0

    def take(self, size: int, what: str) -> bytes:
        require(size <= len(self.data) - self.offset, self.object_name, f"ends inside {what}")
        part = self.data[self.offset : self.offset + size]
        self.offset += size
        return part

    def uint(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "little")

    def u8(self, what: str) -> int:
        return self.uint(1, what)

    def u16(self, what: str) -> int:
        return self.uint(2, what)

    def u32(self, what: str) -> int:
        return self.uint(4, what)

    def u64(self, what: str) -> int:
        return self.uint(8, what)

    def end(self) -> None:
        left = len(self.data) - self.offset
        require(left == 0, self.object_name, f"{left} bytes after the end")
