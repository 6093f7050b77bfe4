# SPDX-License-Identifier: Apache-2.0
"""The valid golden vectors, each a function named after its folder."""

from collections.abc import Callable

from segue_reference.dtypes import ALL
from segue_reference.encode import ALL_STREAMS, Choice
from segue_reference.writers import ZstdFields, varint, zstd_frame

from .scenario import (
    Shards,
    TensorSpec,
    Vector,
    build,
    flip,
    flip_every,
    make_anchor,
    noise,
    spec,
)

VECTORS: dict[str, Callable[[], Vector]] = {}

# Name, dtype, element count: one tensor for each width.
WIDTHS = (("w1", "U8", 601, 1), ("w2", "BF16", 301, 2), ("w4", "F32", 150, 4), ("w8", "I64", 75, 8))


def vector(function: Callable[[], Vector]) -> Callable[[], Vector]:
    VECTORS[function.__name__.replace("_", "-")] = function
    return function


def changed(name: str, dtype: str, count: int, step: int, first: int = 0) -> TensorSpec:
    """A tensor of one dimension of which every `step`-th element changes."""
    bits = next(d.bits for d in ALL if d.name == dtype)
    width = next(d.width for d in ALL if d.name == dtype)
    base = noise(f"base {name}", count * bits // 8)
    return spec(name, dtype, [count], base, flip_every(f"mask {name}", base, width, step, first))


def of_each_width(encoding: str, step: int) -> Vector:
    tensors = [changed(name, dtype, count, step) for name, dtype, count, _ in WIDTHS]
    return build(tensors, [[[Choice(t.name.encode(), encoding) for t in tensors]]])


@vector
def sparse_widths() -> Vector:
    return of_each_width("sparse", 7)


@vector
def planes_widths() -> Vector:
    return of_each_width("planes", 1)


@vector
def snappy_widths() -> Vector:
    return of_each_width("snappy", 9)


@vector
def lz4_widths() -> Vector:
    return of_each_width("lz4", 9)


@vector
def zstd_widths() -> Vector:
    return of_each_width("zstd", 9)


@vector
def raw_widths() -> Vector:
    return of_each_width("raw", 1)


@vector
def sparse_low_bits() -> Vector:
    """From no low bits at all to more than the count of elements needs, up to the limit."""
    low_bits = (0, 1, 4, 8, 9, 16, 23, 24)
    tensors = [changed(f"low{bits:02}", "BF16", 260, 19, 3) for bits in low_bits]
    choices = [Choice(t.name.encode(), "sparse", low_bits=b) for t, b in zip(tensors, low_bits)]
    return build(tensors, [[choices]])


@vector
def sparse_edges() -> Vector:
    """First element alone, last alone, all of them, the two ends, and a chunk of one element."""
    base = noise("edges", 200)
    one = b"\x01\x80"
    tensors = [
        spec("all", "BF16", [100], base, flip(base, 2, {p: one for p in range(100)})),
        spec("ends", "BF16", [100], base, flip(base, 2, {0: one, 99: one})),
        spec("first", "BF16", [100], base, flip(base, 2, {0: one})),
        spec("last", "BF16", [100], base, flip(base, 2, {99: one})),
        spec("one", "BF16", [1], base[:2], flip(base[:2], 2, {0: one})),
        spec("run", "BF16", [100], base, flip(base, 2, {p: one for p in range(60, 70)})),
        spec("word", "BF16", [64], base[:128], flip(base[:128], 2, {p: one for p in range(64)})),
    ]
    return build(tensors, [[[Choice(t.name.encode(), "sparse") for t in tensors]]])


@vector
def sparse_constants() -> Vector:
    """Planes elided as zero, as another value, all of them, and some between stored ones."""
    base = noise("sparse constants", 640)
    masks8 = {p: bytes([p + 1, 0, 7, p, 0, 0, 255, p]) for p in range(3, 80, 5)}
    masks2 = {p: bytes([p % 5 + 1, 0]) for p in range(0, 320, 11)}
    masks4 = {p: b"\x00\x00\x80\x3f" for p in range(1, 160, 6)}
    masks1 = {p: b"\x10" for p in range(2, 640, 13)}
    tensors = [
        spec("w1", "F8_E4M3", [640], base, flip(base, 1, masks1)),
        spec("w2", "BF16", [320], base, flip(base, 2, masks2)),
        spec("w4", "F32", [160], base, flip(base, 4, masks4)),
        spec("w8", "F64", [80], base, flip(base, 8, masks8)),
    ]
    return build(tensors, [[[Choice(t.name.encode(), "sparse") for t in tensors]]])


@vector
def planes_constants() -> Vector:
    """A group whose rows elide every plane has no frame at all; others elide some planes."""
    base = noise("planes constants", 400)
    same = {p: b"\xff\x00" for p in range(200)}
    some = {p: bytes([0, p & 3, 9, 0]) for p in range(100)}
    mixed = {p: bytes([p % 3, 0, 0, 0, 0, 0, 0, 0]) for p in range(50)}
    tensors = [
        spec("same", "F16", [200], base, flip(base, 2, same)),
        spec("some", "I32", [100], base, flip(base, 4, some)),
        spec("zeros", "U64", [50], base, flip(base, 8, mixed)),
    ]
    rows = [Choice(t.name.encode(), "planes") for t in tensors]
    return build(tensors, [[rows[:1], rows[1:]]])


@vector
def constant_planes_stored() -> Vector:
    """Eliding is the encoder's choice: planes of one value may be stored all the same."""
    base = noise("stored constants", 128)
    tensors = [
        spec("p", "BF16", [64], base, flip(base, 2, {p: b"\x05\x00" for p in range(64)})),
        spec("s", "BF16", [64], base, flip(base, 2, {p: b"\x05\x00" for p in range(0, 64, 9)})),
    ]
    rows = [
        Choice(b"p", "planes", elide=frozenset()),
        Choice(b"s", "sparse", elide=frozenset({0})),
    ]
    return build(tensors, [[rows]])


@vector
def chunks() -> Vector:
    """Tensors of several chunks, some unchanged, a short last one, one of exactly one chunk."""
    long = noise("long", 3 * 4096 + 98)
    masks = {p: bytes([p & 255 or 1, 3]) for p in (0, 2047, 6144, 6145, 6190, 6192)}
    exact = noise("exact", 4096)
    tensors = [
        spec("exact", "F32", [32, 32], exact, flip_every("exact mask", exact, 4, 40, 1023 % 40)),
        spec("long", "BF16", [6193], long, flip(long, 2, masks)),
        spec("short", "U8", [5], b"\1\2\3\4\5", b"\1\2\3\4\6"),
    ]
    rows = [
        Choice(b"exact", "sparse"),
        Choice(b"long", "sparse", chunk=0),
        Choice(b"long", "sparse", chunk=3),
        Choice(b"short", "raw"),
    ]
    return build(tensors, [[rows]])


@vector
def groups() -> Vector:
    """Three groups of one, four and two rows; all encodings, and streams that rows skip."""
    names = ("a", "b", "c", "d", "e", "f", "g")
    dtypes = ("BF16", "F32", "U8", "BF16", "I64", "I16", "U8")
    tensors = [changed(name, dtype, 80, 13) for name, dtype in zip(names, dtypes)]
    encodings = ("sparse", "raw", "snappy", "sparse", "lz4", "planes", "zstd")
    rows = [Choice(name.encode(), encoding) for name, encoding in zip(names, encodings)]
    return build(tensors, [[rows[:1], rows[1:5], rows[5:]]])


@vector
def empty_tensors() -> Vector:
    """Tensors of no bytes at the begin, between and at the end of the plan; scalars."""
    half, scale = noise("half", 4), noise("scale", 4)
    tensors = [
        spec("a.empty", "F32", [0], b"", b""),
        spec("b.scalar", "F32", [], scale, flip(scale, 4, {0: b"\1\0\0\0"})),
        spec("c.empty", "U8", [3, 0, 2], b"", b""),
        spec("d.empty", "F4", [0], b"", b""),
        spec("e.half", "BF16", [1, 2], half, flip(half, 2, {1: b"\0\x80"})),
        spec("f.same", "BOOL", [], b"\1", b"\1"),
        spec("g.empty", "F64", [0, 9], b"", b""),
    ]
    order = ["e.half", "c.empty", "g.empty", "b.scalar", "a.empty", "f.same", "d.empty"]
    shards = Shards({"model.safetensors": order}, metadata={})
    rows = [Choice(b"b.scalar", "sparse"), Choice(b"e.half", "sparse")]
    return build(tensors, [[rows]], shards=shards)


@vector
def all_dtypes() -> Vector:
    """Every dtype; those below a byte as packed bytes, C64 in halves."""
    tensors = [changed(f"t{dtype.code:02}", dtype.name, 16, 3, 1) for dtype in ALL]
    return build(tensors, [[[Choice(t.name.encode(), "sparse") for t in tensors]]])


def _outer(compressed: frozenset[int]) -> Vector:
    tensors = [changed("a", "BF16", 200, 5), changed("b", "F32", 50, 1), changed("c", "U8", 90, 2)]
    rows = [Choice(b"a", "sparse"), Choice(b"b", "planes"), Choice(b"c", "raw")]
    return build(tensors, [[rows]], compressed=compressed)


@vector
def outer_stored() -> Vector:
    return _outer(frozenset())


@vector
def outer_zstd() -> Vector:
    return _outer(ALL_STREAMS)


@vector
def outer_content_size_absent() -> Vector:
    """As a streaming compressor writes them, with the largest window that is allowed."""
    result = _outer(ALL_STREAMS)
    fields = ZstdFields(content_size=None, window_log=23)
    for payload in result.payloads:
        for group in payload.groups:
            for frame in group.frames:
                frame.stored = zstd_frame(frame.inner, fields)
    return result


@vector
def touched_absent() -> Vector:
    """As a composed delta has it: `touched` is 0 and readers compare the whole chunk."""
    tensors = [changed("a", "BF16", 100, 6), changed("b", "F32", 60, 4)]
    rows = [Choice(t.name.encode(), "sparse", touched=False) for t in tensors]
    return build(tensors, [[rows]])


@vector
def touched_of_zeros() -> Vector:
    """Where the base values are all zero, `touched` comes out as 0, which reads as absent."""
    base = bytes(200)
    tensors = [spec("a", "BF16", [100], base, flip_every("zeros", base, 2, 8))]
    return build(tensors, [[[Choice(b"a", "sparse")]]])


@vector
def two_owners() -> Vector:
    tensors = [changed(name, "BF16", 100, 6) for name in ("a", "b", "c", "d")]
    rows = [Choice(t.name.encode(), "sparse") for t in tensors]
    return build(tensors, [[rows[:2]], [rows[2:]]])


@vector
def anchor_of_many_versions() -> Vector:
    """One delta over 39 versions: sparse and dense chunks, `touched` not recorded."""
    sparse, dense = changed("a", "BF16", 200, 6), changed("b", "BF16", 200, 1)
    rows = [Choice(b"a", "sparse", touched=False), Choice(b"b", "planes")]
    made = build([sparse, dense], [[rows]])
    make_anchor(made, "base", 1, 40)
    return made


@vector
def anchor_at_its_target() -> Vector:
    """Base and target are one version; there is no payload."""
    same = changed("a", "BF16", 200, 6)
    made = build([spec("a", "BF16", [200], same.base, same.base)], [])
    make_anchor(made, "eval", 7, 7)
    return made


@vector
def owner_without_rows() -> Vector:
    """Three owners; nothing changes in what the second one covers."""
    a, b, c = (changed(name, "BF16", 60, 6) for name in ("a", "b", "c"))
    b = spec("b", "BF16", [60], b.base, b.base)
    return build([a, b, c], [[[Choice(b"a", "sparse")]], [], [[Choice(b"c", "raw")]]])


@vector
def empty_update() -> Vector:
    base = noise("unchanged", 64)
    return build([spec("a", "BF16", [32], base, base)], [[]])


@vector
def no_tensors() -> Vector:
    """A model of no tensors is a model: plan, layout and payload are empty but present."""
    return build([], [[]], shards=Shards({"model.safetensors": []}))


@vector
def layout_changed() -> Vector:
    """The target splits into other shards, with metadata and an index that the base lacks."""
    tensors = [changed("a", "BF16", 40, 5), changed("b", "F32", 10, 3), changed("c", "U8", 9, 2)]
    target = Shards(
        {"model-00001-of-00002.safetensors": ["c", "a"], "model-00002-of-00002.safetensors": ["b"]},
        metadata={"format": "pt"},
        index=True,
    )
    rows = [Choice(t.name.encode(), "sparse") for t in tensors]
    return build(tensors, [[rows]], target_shards=target)


@vector
def odd_offsets() -> Vector:
    """Nothing is aligned: odd tensor sizes in front of wide elements, an unpadded header."""
    tensors = [
        changed("a", "U8", 3, 2),
        changed("b", "BF16", 5, 4),
        changed("c", "F32", 7, 6),
        changed("d", "F64", 2, 1),
    ]
    shards = Shards({"model.safetensors": ["a", "b", "c", "d"]}, metadata={"k": "v"}, pad=1)
    rows = [Choice(t.name.encode(), "sparse") for t in tensors]
    vector = build(tensors, [[rows]], shards=shards)
    assert len(vector.base_files["model.safetensors"]) % 8 != 0
    return vector


@vector
def names() -> Vector:
    """Order is that of UTF-8 bytes, not of UTF-16 units; names are escaped in the header."""
    labels = ("A", "a", "a.", "a.b", 'q"\\/\n', "\u00e9", "\uffee", "\U0001f600")
    tensors = [changed(label, "BF16", 20, 3) for label in labels]
    shards = Shards({"model.safetensors": list(reversed(labels))}, ascii=True)
    rows = [Choice(t.name.encode(), "sparse") for t in sorted(tensors, key=lambda t: t.name)]
    return build(tensors, [[rows]], shards=shards)


SNAPPY_CORNERS = (
    varint(296)
    + b"\x0cabcd"  # Literal of 4.
    + b"\x01\x04"  # Copy, 1-byte offset 4, length 4.
    + b"\x0e\x01\x00"  # Copy, 2-byte offset 1, length 4: a run.
    + b"\x7f\x0c\x00\x00\x00"  # Copy, 4-byte offset 12, length 32.
    + b"\xf0\x3b"  # Literal with its length in one byte: 60.
    + bytes(range(60))
    + b"\xf4\x57\x00"  # Literal with its length in two bytes: 88.
    + bytes(88)
    + b"\xfe\x68\x00"  # Copy, 2-byte offset 104, length 64.
    + b"\x9e\x02\x00"  # Copy, 2-byte offset 2, length 40: overlaps.
)

LZ4_CORNERS = (
    b"\x4fabcd\x04\x00\xff\x12"  # 4 literals, offset 4, length 15 + 255 + 18 + 4: overlaps.
    + b"\x00\x01\x00"  # No literals, offset 1, length 4: a run.
)


@vector
def codec_corners() -> Vector:
    """Hand-made blocks: every kind of Snappy copy and literal, LZ4 lengths that continue, Zstd
    frames without content size, without checksum, and with run-length blocks."""
    mask_snappy = bytes(b"abcd" * 2 + b"d" * 4)
    mask_snappy += (mask_snappy * 3)[:32] + bytes(range(60)) + bytes(88)
    mask_snappy += mask_snappy[-104:-40]
    mask_snappy += mask_snappy[-2:] * 20
    assert len(mask_snappy) == 296
    lz4 = LZ4_CORNERS + b"\xf0\x01" + bytes(range(1, 17))
    mask_lz4 = b"abcd" * 74 + b"d" * 4 + bytes(range(1, 17))
    mask_zstd = b"\x07" * 64
    open_frame = zstd_frame(
        mask_zstd, ZstdFields(content_size=None, checksum=False, window_log=23, run_length=True)
    )
    blocks = {"lz4": (mask_lz4, lz4), "snappy": (mask_snappy, SNAPPY_CORNERS)}
    blocks |= {"zstd": (mask_zstd, open_frame)}
    tensors, rows = [], []
    for name, (mask, block) in blocks.items():
        base = noise(name, len(mask))
        masks = {p: bytes([b]) for p, b in enumerate(mask) if b}
        tensors.append(spec(name, "U8", [len(mask)], base, flip(base, 1, masks)))
        rows.append(Choice(name.encode(), name, dense=block))
    return build(tensors, [[rows]])


@vector
def chunk_size_max() -> Vector:
    tensors = [changed("a", "BF16", 700, 60)]
    return build(tensors, [[[Choice(b"a", "sparse", low_bits=24)]]], chunk_size_log2=24)


def words16(*values: int) -> bytes:
    return b"".join(value.to_bytes(2, "little") for value in values)


@vector
def float_specials() -> Vector:
    """Changes that a comparison of numbers misses: 0.0 to -0.0, one NaN to another, denormals."""
    base = words16(0x0000, 0x7FC0, 0x7FC1, 0x0001, 0x7F81, 0x8000)
    new = words16(0x8000, 0x7FC1, 0x3F80, 0x0002, 0xFFFF, 0x0000)
    return build([spec("a", "BF16", [6], base, new)], [[[Choice(b"a", "sparse")]]])


@vector
def digest_wraps() -> Vector:
    """Largest words to zero and back, so that every sum of the digest wraps."""
    ones, zeros = b"\xff" * 1024, bytes(1024)
    tensors = [spec("a", "U32", [256], ones, zeros), spec("b", "U32", [256], zeros, ones)]
    return build(tensors, [[[Choice(b"a", "planes"), Choice(b"b", "sparse", low_bits=0)]]])


@vector
def raw_change_count_above() -> Vector:
    """A raw row may state more changed elements than there are."""
    result = build([changed("a", "BF16", 30, 4)], [[[Choice(b"a", "raw")]]])
    result.payloads[0].rows[0]["change_count"] = 30
    return result


@vector
def manifest_object_names() -> Vector:
    """Where a payload lies below its lineage is the writer's choice."""
    vector = build([changed("a", "BF16", 20, 3)], [[[Choice(b"a", "sparse")]]])
    vector.entries[0] = {"object": "golden/elsewhere/payload.0"}
    return vector


@vector
def manifest_unknown_keys() -> Vector:
    vector = build([changed("a", "BF16", 20, 3)], [[[Choice(b"a", "sparse")]]])
    vector.manifest["signature"] = {"algorithm": "none", "value": None}
    vector.entries[0] = {"created": 1.5}
    return vector


@vector
def version_max() -> Vector:
    vector = build([changed("a", "BF16", 20, 3)], [[[Choice(b"a", "sparse")]]])
    vector.manifest |= {"base_version": 0, "target_version": 9_999_999_999}
    return vector
