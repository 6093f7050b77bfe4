# SPDX-License-Identifier: Apache-2.0
"""The invalid golden vectors: a truthful vector each, and one precise lie.

`lie` registers a function that changes a `Vector` in place; hashes, sizes and sums are computed
afterwards, so that a reader meets the lie and not a hash that disagrees. The lies themselves are in
`invalid_payload.py`, `invalid_streams.py` and `invalid_objects.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from segue_reference.encode import Choice, Draft, DraftFrame

from .scenario import Shards, Vector, build
from .valid import changed

# Rows of the base vector, in order; each tensor is one chunk, so these are chunk numbers as well.
A_SPARSE, B_SPARSE, C_PLANES, D_RAW, F_SNAPPY, G_LZ4, H_ZSTD = range(7)


@dataclass(frozen=True)
class Lie:
    code: str
    object: str
    reason: str
    apply: Callable[[Vector], None]
    also: tuple[str, ...] = ()
    start: Callable[[], Vector] | None = None

    def build(self) -> Vector:
        vector = (self.start or every_encoding)()
        self.apply(vector)
        return vector


VECTORS: dict[str, Lie] = {}


def lie(
    object_name: str,
    reason: str,
    code: str = "corruption",
    also: tuple[str, ...] = (),
    start: Callable[[], Vector] | None = None,
) -> Callable[[Callable[[Vector], None]], Callable[[Vector], None]]:
    """Registers a lie under its function's name."""

    def register(function: Callable[[Vector], None]) -> Callable[[Vector], None]:
        name = function.__name__.replace("_", "-")
        assert name not in VECTORS
        VECTORS[name] = Lie(code, object_name, reason, function, also, start)
        return function

    return register


def every_encoding() -> Vector:
    """Two groups: two sparse rows; then planes, raw, snappy, lz4 and zstd."""
    tensors = [
        changed("a", "BF16", 96, 7),
        changed("b", "U8", 100, 9, 2),
        changed("c", "F32", 12, 1),
        changed("d", "F64", 6, 1),
        changed("e", "F32", 0, 1),
        changed("f", "I16", 40, 11),
        changed("g", "BF16", 40, 9),
        changed("h", "U8", 60, 9),
    ]
    encodings = zip("abcdfgh", ("sparse", "sparse", "planes", "raw", "snappy", "lz4", "zstd"))
    rows = [Choice(name.encode(), encoding) for name, encoding in encodings]
    return build(tensors, [[rows[:2], rows[2:]]])


def one_tensor() -> Vector:
    """The smallest update: one sparse row."""
    return build([changed("a", "BF16", 20, 3)], [[[Choice(b"a", "sparse")]]])


def two_tensors() -> Vector:
    return build(
        [changed("a", "BF16", 20, 3), changed("b", "U8", 10, 3)],
        [[[Choice(b"a", "sparse"), Choice(b"b", "sparse")]]],
    )


def two_groups() -> Vector:
    """As `two_tensors`, each row in a group of its own."""
    return build(
        [changed("a", "BF16", 20, 3), changed("b", "U8", 10, 3)],
        [[[Choice(b"a", "sparse")], [Choice(b"b", "sparse")]]],
    )


def two_owners() -> Vector:
    return build(
        [changed("a", "BF16", 20, 3), changed("b", "U8", 10, 3)],
        [[[Choice(b"a", "sparse")]], [[Choice(b"b", "sparse")]]],
    )


def two_shards() -> Vector:
    shards = Shards(
        {"m-1.safetensors": ["a"], "m-2.safetensors": ["b"]}, metadata={"format": "pt"}, index=True
    )
    return build(
        [changed("a", "BF16", 20, 3), changed("b", "U8", 10, 3)],
        [[[Choice(b"a", "sparse"), Choice(b"b", "sparse")]]],
        shards=shards,
    )


def draft_of(vector: Vector, owner: int = 0) -> Draft:
    draft = vector.payloads[owner]
    assert isinstance(draft, Draft)
    return draft


def row_of(vector: Vector, row: int) -> dict:
    return draft_of(vector).rows[row]


def frame_of(vector: Vector, group: int, stream: int) -> DraftFrame:
    """The frame that a stream of a group has."""
    drafted = draft_of(vector).groups[group]
    assert drafted.stream_mask >> stream & 1
    return drafted.frames[(drafted.stream_mask & ((1 << stream) - 1)).bit_count()]


# The lies register themselves when their modules are imported.
from . import invalid_objects, invalid_payload, invalid_streams  # noqa: E402, F401
