# SPDX-License-Identifier: Apache-2.0
"""The plan of section 2: names, dtypes, shapes, and how tensors are cut into chunks."""

import bisect
import hashlib
import math
from dataclasses import dataclass, field

from . import limits
from .dtypes import BY_CODE, Dtype
from .errors import UNSUPPORTED, limit, require
from .reader import Reader

MAGIC = b"SEGUEPLN"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Tensor:
    number: int
    name: bytes
    dtype: Dtype
    shape: tuple[int, ...]
    size: int
    first_chunk: int


@dataclass(frozen=True)
class ChunkPlace:
    """Where a chunk lies: `size` bytes of `tensor` from `offset`."""

    tensor: Tensor
    offset: int
    size: int

    @property
    def element_count(self) -> int:
        return self.size // self.tensor.dtype.width


@dataclass(frozen=True)
class Plan:
    chunk_size: int
    tensors: tuple[Tensor, ...]
    chunk_count: int
    digest: str
    first_chunks: list[int] = field(repr=False)

    @property
    def model_size(self) -> int:
        return sum(tensor.size for tensor in self.tensors)

    def place(self, chunk: int) -> ChunkPlace:
        """The place of a chunk number below `chunk_count`."""
        assert 0 <= chunk < self.chunk_count
        # Tensors without chunks share their first chunk number with the next one; the last of the
        # equals is the one that has the chunk.
        tensor = self.tensors[bisect.bisect_right(self.first_chunks, chunk) - 1]
        offset = (chunk - tensor.first_chunk) * self.chunk_size
        return ChunkPlace(tensor, offset, min(self.chunk_size, tensor.size - offset))


def tensor_size(dtype: Dtype, shape: tuple[int, ...], object_name: str) -> int:
    """Product of the shape times the dtype's bits, in whole bytes, within the limit."""
    bits = math.prod(shape) * dtype.bits
    require(bits % 8 == 0, object_name, f"{dtype.name} {list(shape)} is not whole bytes")
    limit(bits // 8, limits.TENSOR_SIZE, object_name, "tensor size")
    return bits // 8


def _read_record(reader: Reader) -> tuple[Dtype, tuple[int, ...], bytes]:
    code = reader.u8("dtype")
    require(code in BY_CODE, "plan", f"unknown dtype code {code}", UNSUPPORTED)
    rank = reader.u8("rank")
    limit(rank, limits.TENSOR_RANK, "plan", "rank")
    name_size = reader.u16("name_size")
    require(name_size > 0, "plan", "empty tensor name")
    limit(name_size, limits.TENSOR_NAME_SIZE, "plan", "name_size")
    shape = tuple(reader.u64("dims") for _ in range(rank))
    name = reader.take(name_size, "name")
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        require(False, "plan", "tensor name is not UTF-8")
    return BY_CODE[code], shape, name


def _read_header(reader: Reader) -> tuple[int, int]:
    """Magic to tensor_count; gives the chunk size and the count."""
    require(reader.take(8, "magic") == MAGIC, "plan", "wrong magic")
    version = reader.u32("format_version")
    require(version == FORMAT_VERSION, "plan", f"format_version {version}", UNSUPPORTED)
    log2 = reader.u32("chunk_size_log2")
    require(log2 >= limits.CHUNK_SIZE_LOG2_MIN, "plan", f"chunk_size_log2 {log2} is below 12")
    limit(log2, limits.CHUNK_SIZE_LOG2_MAX, "plan", "chunk_size_log2")
    count = reader.u64("tensor_count")
    limit(count, limits.TENSOR_COUNT, "plan", "tensor_count")
    return 1 << log2, count


def parse_plan(data: bytes) -> Plan:
    """Reads a plan object and applies every rule of section 2."""
    limit(len(data), limits.PLAN_SIZE, "plan", "object size")
    reader = Reader(data, "plan")
    chunk_size, count = _read_header(reader)
    tensors: list[Tensor] = []
    chunk_count = 0
    for number in range(count):
        dtype, shape, name = _read_record(reader)
        if tensors:
            require(tensors[-1].name < name, "plan", "names are not in strictly ascending order")
        size = tensor_size(dtype, shape, "plan")
        tensors.append(Tensor(number, name, dtype, shape, size, chunk_count))
        chunk_count += -(-size // chunk_size)
        limit(chunk_count, limits.CHUNK_COUNT, "plan", "chunk count")
    reader.end()
    require(sum(t.size for t in tensors) < 1 << 63, "plan", "tensor sizes exceed 63 bits")
    digest = hashlib.sha256(data).hexdigest()
    first_chunks = [tensor.first_chunk for tensor in tensors]
    return Plan(chunk_size, tuple(tensors), chunk_count, digest, first_chunks)
