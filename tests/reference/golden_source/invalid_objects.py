# SPDX-License-Identifier: Apache-2.0
"""Lies in manifest, plan and layout, and a base that is not the update's."""

from collections.abc import Callable

from segue_reference.encode import layout_object, plan_bytes
from segue_reference.layout import inner_bytes
from segue_reference.writers import ZstdFields, zstd_frame

from .invalid import lie, one_tensor, two_owners, two_shards, two_tensors
from .scenario import Vector, files_of, flip, make_anchor, set_layout_inner, set_plan

# Anchor record.


def anchor() -> Vector:
    vector = one_tensor()
    make_anchor(vector, "eval", 1, 40)
    return vector


def anchor_lie(reason: str) -> Callable:
    return lie("manifest", reason, start=anchor)


@anchor_lie("anchor is missing")
def anchor_name_missing(vector: Vector) -> None:
    edit_text(vector, lambda text: text.replace(b'"anchor":', b'"Anchor":'))


@anchor_lie("anchor begins with a dot")
def anchor_name(vector: Vector) -> None:
    vector.manifest["anchor"] = ".eval"


@anchor_lie("base_version is above target_version")
def anchor_versions(vector: Vector) -> None:
    vector.manifest["base_version"] = 41


@anchor_lie("base_version equals target_version, and there is a payload")
def anchor_payload_to_itself(vector: Vector) -> None:
    vector.manifest["base_version"] = 40


@anchor_lie("there is no payload, and base and target are two versions")
def anchor_without_payload(vector: Vector) -> None:
    vector.manifest["payloads"] = []


@anchor_lie("base_version equals target_version, and the digests differ")
def anchor_of_two_digests(vector: Vector) -> None:
    vector.manifest |= {"base_version": 40, "payloads": []}
    vector.manifest |= {"changed_chunks": 0, "changed_elements": 0}


# Manifest.


def manifest_lie(reason: str, code: str = "corruption", also: tuple[str, ...] = ()) -> Callable:
    return lie("manifest", reason, code, also, start=one_tensor)


def edit_text(vector: Vector, edit: Callable[[bytes], bytes]) -> None:
    vector.manifest_text = edit(files_of(vector)[vector.record_file])


@manifest_lie("not JSON: ends early")
def manifest_truncated(vector: Vector) -> None:
    edit_text(vector, lambda text: text[:-3])


@manifest_lie("text after the object")
def manifest_trailing_text(vector: Vector) -> None:
    edit_text(vector, lambda text: text + b"{}")


@manifest_lie("an array in place of an object")
def manifest_array(vector: Vector) -> None:
    edit_text(vector, lambda text: b"[" + text + b"]")


@manifest_lie("not UTF-8")
def manifest_not_utf8(vector: Vector) -> None:
    edit_text(vector, lambda text: text.replace(b"sparse-zstd", b"sparse\xff"))


@manifest_lie("base_version twice, with the same value")
def manifest_duplicate_key(vector: Vector) -> None:
    edit_text(vector, lambda text: text.replace(b"{", b'{"base_version": 1,', 1))


@manifest_lie("rows twice within a payload's entry")
def manifest_duplicate_key_inside(vector: Vector) -> None:
    edit_text(vector, lambda text: text.replace(b'"owner": 0', b'"rows": 1, "owner": 0'))


@manifest_lie("target_digest is missing")
def manifest_key_missing(vector: Vector) -> None:
    edit_text(vector, lambda text: text.replace(b'"target_digest"', b'"target_digesT"'))


@manifest_lie("format is not segue-manifest")
def manifest_format(vector: Vector) -> None:
    vector.manifest["format"] = "segue-owner"


@manifest_lie("format_version 2", code="unsupported")
def manifest_version(vector: Vector) -> None:
    vector.manifest["format_version"] = 2


@manifest_lie("lineage begins with a dot")
def manifest_lineage(vector: Vector) -> None:
    vector.manifest["lineage"] = "..golden"


@manifest_lie("base_version equals target_version")
def manifest_versions_equal(vector: Vector) -> None:
    vector.manifest["base_version"] = 2


@manifest_lie("target_version 10,000,000,000")
def manifest_version_over(vector: Vector) -> None:
    vector.manifest["target_version"] = 10_000_000_000


@manifest_lie("target_version is a string")
def manifest_version_string(vector: Vector) -> None:
    vector.manifest["target_version"] = "2"


@manifest_lie("base_version is 1.5")
def manifest_version_fraction(vector: Vector) -> None:
    vector.manifest["base_version"] = 1.5


@manifest_lie("base_version is negative")
def manifest_version_negative(vector: Vector) -> None:
    vector.manifest["base_version"] = -1


@manifest_lie("plan digest in upper case")
def manifest_digest_upper_case(vector: Vector) -> None:
    vector.manifest["plan"] = vector.computed["plan"].upper()


@manifest_lie("base_digest has 31 digits")
def manifest_digest_short(vector: Vector) -> None:
    vector.manifest["base_digest"] = vector.computed["base_digest"][:-1]


@manifest_lie("plan digest is that of another plan")
def manifest_plan(vector: Vector) -> None:
    vector.manifest["plan"] = "0" * 64


@manifest_lie("target_layout is the digest of another layout")
def manifest_layout(vector: Vector) -> None:
    vector.manifest["target_layout"] = "0" * 64


@manifest_lie("model_bytes is not the sum of the tensor sizes")
def manifest_model_bytes(vector: Vector) -> None:
    vector.manifest["model_bytes"] = 41


@manifest_lie("changed_chunks is not the sum over the payloads")
def manifest_changed_chunks(vector: Vector) -> None:
    vector.manifest["changed_chunks"] = 2


@manifest_lie("changed_elements is not the sum over the payloads")
def manifest_changed_elements(vector: Vector) -> None:
    vector.manifest["changed_elements"] = 8


@manifest_lie("rows of a payload is not what it has")
def manifest_rows(vector: Vector) -> None:
    vector.entries[0] = {"rows": 2}


@lie("payload", "size in the manifest is 2^60", also=("resource_exhausted",), start=one_tensor)
def manifest_size_huge(vector: Vector) -> None:
    vector.entries[0] = {"size": 1 << 60}


@manifest_lie("object name of a payload leads out of the store", also=("invalid_argument",))
def manifest_object_escapes(vector: Vector) -> None:
    vector.entries[0] = {"object": "../../outside/00000-of-00001-0123456789abcdef"}


@manifest_lie("object name of a payload leads out of the lineage", also=("invalid_argument",))
def manifest_object_climbs(vector: Vector) -> None:
    vector.entries[0] = {"object": "golden/payloads/../../other/payloads/x"}


@manifest_lie("object name of a payload lies in another lineage", also=("invalid_argument",))
def manifest_object_of_other_lineage(vector: Vector) -> None:
    vector.entries[0] = {"object": "golden2/payloads/0000000002/00000-of-00001-0123456789abcdef"}


@manifest_lie("object name of a payload is an absolute path", also=("invalid_argument",))
def manifest_object_absolute(vector: Vector) -> None:
    vector.entries[0] = {"object": "/golden/payloads/x"}


@manifest_lie("target_digest is not what the rows lead to")
def manifest_target_digest(vector: Vector) -> None:
    digits = vector.computed["target_digest"]
    vector.manifest["target_digest"] = digits[:31] + ("0" if digits[31] != "0" else "1")


@lie(
    "base",
    "base_digest and target_digest are off by the same: the base given is not the one meant",
    code="version_mismatch",
    also=("corruption",),
    start=one_tensor,
)
def manifest_both_digests(vector: Vector) -> None:
    for key in ("base_digest", "target_digest"):
        digits = vector.computed[key]
        lane = (int(digits[16:], 16) + 1) % (1 << 64)
        vector.manifest[key] = f"{digits[:16]}{lane:016x}"


@lie("manifest", "owners in another order than their numbers", start=two_owners)
def manifest_owner_order(vector: Vector) -> None:
    vector.entries = {0: {"owner": 1}, 1: {"owner": 0}}


@manifest_lie("no payloads at all")
def manifest_no_payloads(vector: Vector) -> None:
    vector.manifest |= {"payloads": [], "changed_chunks": 0, "changed_elements": 0}
    vector.manifest["target_digest"] = vector.computed["base_digest"]


# Base.


@lie(
    "base",
    "one bit of a changed element differs, which the XOR leaves alone",
    code="version_mismatch",
    start=one_tensor,
)
def base_differs(vector: Vector) -> None:
    name, data = next(iter(vector.base_files.items()))
    vector.base_files[name] = flip(data, 1, {len(data) - 40: b"\x40"})


# Plan.


def plan_lie(reason: str, code: str = "corruption", also: tuple[str, ...] = ()) -> Callable:
    return lie("plan", reason, code, also, start=two_tensors)


BF16, U8, F4 = 15, 5, 2
RECORDS = [(b"a", BF16, [20]), (b"b", U8, [10])]


def set_records(vector: Vector, records: list, chunk_size_log2: int = 12) -> None:
    set_plan(vector, plan_bytes(records, chunk_size_log2))


def splice(vector: Vector, offset: int, data: bytes) -> None:
    set_plan(vector, vector.plan[:offset] + data + vector.plan[offset + len(data) :])


@plan_lie("magic")
def plan_magic(vector: Vector) -> None:
    splice(vector, 0, b"SEGUEPLM")


@plan_lie("format_version 2", code="unsupported")
def plan_version(vector: Vector) -> None:
    splice(vector, 8, b"\2")


@plan_lie("chunk_size_log2 11", also=("resource_exhausted",))
def plan_chunk_size_under(vector: Vector) -> None:
    splice(vector, 12, b"\x0b")


@plan_lie("chunk_size_log2 25", code="resource_exhausted", also=("corruption",))
def plan_chunk_size_over(vector: Vector) -> None:
    splice(vector, 12, b"\x19")


@plan_lie("tensor_count 2^60", code="resource_exhausted", also=("corruption",))
def plan_tensor_count_huge(vector: Vector) -> None:
    splice(vector, 16, (1 << 60).to_bytes(8, "little"))


@plan_lie("tensor_count one more than there are records")
def plan_tensor_count_over(vector: Vector) -> None:
    splice(vector, 16, b"\3")


@plan_lie("record after the last one counted")
def plan_trailing_bytes(vector: Vector) -> None:
    splice(vector, 16, b"\1")


@plan_lie("ends inside the last name")
def plan_truncated(vector: Vector) -> None:
    set_plan(vector, vector.plan[:-1])


@plan_lie("dtype code 0", code="unsupported")
def plan_dtype_zero(vector: Vector) -> None:
    set_records(vector, [(b"a", 0, [20]), RECORDS[1]])


@plan_lie("dtype code 23", code="unsupported")
def plan_dtype_unknown(vector: Vector) -> None:
    set_records(vector, [(b"a", 23, [20]), RECORDS[1]])


@plan_lie("rank 33", code="resource_exhausted", also=("corruption",))
def plan_rank(vector: Vector) -> None:
    set_records(vector, [(b"a", BF16, [20] + 32 * [1]), RECORDS[1]])


@plan_lie("name of no bytes")
def plan_name_empty(vector: Vector) -> None:
    set_records(vector, [(b"", BF16, [20]), RECORDS[1]])


@plan_lie("name of 4097 bytes", code="resource_exhausted", also=("corruption",))
def plan_name_long(vector: Vector) -> None:
    set_records(vector, [(b"a" * 4097, BF16, [20]), RECORDS[1]])


@plan_lie("name is not UTF-8")
def plan_name_not_utf8(vector: Vector) -> None:
    set_records(vector, [(b"a", BF16, [20]), (b"\xff", U8, [10])])


@plan_lie("names in descending order")
def plan_names_descend(vector: Vector) -> None:
    set_records(vector, RECORDS[::-1])


@plan_lie("the same name twice")
def plan_name_twice(vector: Vector) -> None:
    set_records(vector, [RECORDS[0], (b"a", U8, [10])])


@plan_lie("F4 with 3 values is 12 bits")
def plan_not_whole_bytes(vector: Vector) -> None:
    set_records(vector, [RECORDS[0], (b"b", F4, [3])])


@plan_lie("shape whose product wraps around 2^64 to 20", "resource_exhausted", ("corruption",))
def plan_shape_wraps(vector: Vector) -> None:
    set_records(vector, [(b"a", BF16, [4, (1 << 62) + 5]), RECORDS[1]])


@plan_lie("tensor of 2^46 + 1 bytes", code="resource_exhausted", also=("corruption",))
def plan_tensor_size_over(vector: Vector) -> None:
    set_records(vector, [RECORDS[0], (b"b", U8, [(1 << 46) + 1])])


@plan_lie("more than 2^32 chunks", code="resource_exhausted", also=("corruption",))
def plan_chunk_count_over(vector: Vector) -> None:
    """2^44 bytes in chunks of 4 KiB are 2^32 chunks; one more tensor is one too many."""
    set_records(vector, [(b"a", U8, [1 << 44]), RECORDS[1]])


# Layout.


def layout_lie(reason: str, code: str = "corruption", also: tuple[str, ...] = ()) -> Callable:
    return lie("layout", reason, code, also, start=two_shards)


def shards_of(vector: Vector) -> dict[bytes, bytes]:
    """Headers by shard, from the files that the target has."""
    shards = {}
    for name, data in vector.target_files.items():
        if name.endswith(".safetensors"):
            shards[name.encode()] = data[8 : 8 + int.from_bytes(data[:8], "little")]
    return shards


def index_of(vector: Vector) -> bytes:
    return vector.target_files["model.safetensors.index.json"]


def set_shard_name(vector: Vector, name: bytes) -> None:
    """Renames the second shard; names that sort before the first take its place in order."""
    shards = shards_of(vector)
    renamed = {b"m-1.safetensors": shards[b"m-1.safetensors"], name: shards[b"m-2.safetensors"]}
    set_layout_inner(vector, inner_bytes(renamed, index_of(vector)))


def set_header(vector: Vector, old: bytes, new: bytes) -> None:
    """Replaces a text of one length by another in the headers."""
    assert len(old) == len(new) and old in vector.layout_inner
    set_layout_inner(vector, vector.layout_inner.replace(old, new, 1))


@layout_lie("magic")
def layout_magic(vector: Vector) -> None:
    vector.layout = b"SEGUELAX" + vector.layout[8:]


@layout_lie("format_version 2", code="unsupported")
def layout_version(vector: Vector) -> None:
    vector.layout = vector.layout[:8] + b"\2" + vector.layout[9:]


@layout_lie("reserved field is 1")
def layout_reserved(vector: Vector) -> None:
    vector.layout = vector.layout[:12] + b"\1" + vector.layout[13:]


@layout_lie("inner_size one more than the frame decodes to")
def layout_inner_size(vector: Vector) -> None:
    inner = vector.layout_inner
    vector.layout = layout_object(inner, inner_size=len(inner) + 1)


@layout_lie("inner_size 2^60", code="resource_exhausted", also=("corruption",))
def layout_inner_size_huge(vector: Vector) -> None:
    vector.layout = layout_object(vector.layout_inner, inner_size=1 << 60)


@layout_lie("bytes after the frame")
def layout_trailing_bytes(vector: Vector) -> None:
    vector.layout += b"\0"


@layout_lie("not a Zstd frame")
def layout_garbage(vector: Vector) -> None:
    vector.layout = layout_object(vector.layout_inner, frame=bytes(30))


@layout_lie("Zstd window 2^24", code="resource_exhausted", also=("corruption",))
def layout_window(vector: Vector) -> None:
    frame = zstd_frame(vector.layout_inner, ZstdFields(window_log=24))
    vector.layout = layout_object(vector.layout_inner, frame=frame)


@layout_lie("bytes after the index in the inner part")
def layout_inner_trailing_bytes(vector: Vector) -> None:
    set_layout_inner(vector, vector.layout_inner + b"\0")


@layout_lie("shard_count 2^32 - 1", code="resource_exhausted", also=("corruption",))
def layout_shard_count_huge(vector: Vector) -> None:
    set_layout_inner(vector, b"\xff\xff\xff\xff" + vector.layout_inner[4:])


@layout_lie("header_size 100,000,001", code="resource_exhausted", also=("corruption",))
def layout_header_size_over(vector: Vector) -> None:
    inner = vector.layout_inner
    at = 4 + 2 + len(b"m-1.safetensors")
    size = (100_000_001).to_bytes(8, "little")
    set_layout_inner(vector, inner[:at] + size + inner[at + 8 :])


@layout_lie("index_size 2^60", code="resource_exhausted", also=("corruption",))
def layout_index_size_huge(vector: Vector) -> None:
    inner, size = vector.layout_inner, len(index_of(vector))
    at = len(inner) - size - 8
    set_layout_inner(vector, inner[:at] + (1 << 60).to_bytes(8, "little") + inner[at + 8 :])


@layout_lie("shard name with a slash")
def layout_name_slash(vector: Vector) -> None:
    set_shard_name(vector, b"sub/m-2.safetensors")


@layout_lie("shard name that leads to the parent folder")
def layout_name_parent(vector: Vector) -> None:
    set_shard_name(vector, b"../m-2.safetensors")


@layout_lie("shard name with a backslash")
def layout_name_backslash(vector: Vector) -> None:
    set_shard_name(vector, b"n\\m-2.safetensors")


@layout_lie("shard name that begins with a dot")
def layout_name_hidden(vector: Vector) -> None:
    set_shard_name(vector, b".m-2.safetensors")


@layout_lie("shard name with another ending")
def layout_name_ending(vector: Vector) -> None:
    set_shard_name(vector, b"m-2.safetensors.py")


@layout_lie("shard name with NUL")
def layout_name_nul(vector: Vector) -> None:
    set_shard_name(vector, b"n\0.safetensors")


@layout_lie("shard name with a line feed")
def layout_name_control(vector: Vector) -> None:
    set_shard_name(vector, b"n\n.safetensors")


@layout_lie("shard name of no bytes")
def layout_name_empty(vector: Vector) -> None:
    set_shard_name(vector, b"")


@layout_lie("shard name of 256 bytes", code="resource_exhausted", also=("corruption",))
def layout_name_long(vector: Vector) -> None:
    set_shard_name(vector, b"n" * 244 + b".safetensors")


def _two_shards_inner(vector: Vector, names: tuple[bytes, bytes]) -> bytes:
    """Inner bytes with these names in this order, sorted or not."""
    out = (2).to_bytes(4, "little")
    for name, header in zip(names, shards_of(vector).values()):
        out += len(name).to_bytes(2, "little") + name + len(header).to_bytes(8, "little") + header
    return out + len(index_of(vector)).to_bytes(8, "little") + index_of(vector)


@layout_lie("shard names in descending order")
def layout_names_descend(vector: Vector) -> None:
    set_layout_inner(vector, _two_shards_inner(vector, (b"m-2.safetensors", b"m-1.safetensors")))


@layout_lie("the same shard name twice")
def layout_name_twice(vector: Vector) -> None:
    set_layout_inner(vector, _two_shards_inner(vector, (b"m-1.safetensors", b"m-1.safetensors")))


@layout_lie("header lacks a tensor of the plan")
def layout_tensor_missing(vector: Vector) -> None:
    shards = dict(list(shards_of(vector).items())[:1])
    set_layout_inner(vector, inner_bytes(shards, index_of(vector)))


@layout_lie("header holds a tensor that the plan does not have")
def layout_tensor_unknown(vector: Vector) -> None:
    set_header(vector, b'"b":{', b'"x":{')


@layout_lie("tensor in two shards")
def layout_tensor_twice(vector: Vector) -> None:
    shards = shards_of(vector)
    shards[b"m-3.safetensors"] = shards[b"m-1.safetensors"]
    set_layout_inner(vector, inner_bytes(shards, index_of(vector)))


@layout_lie("dtype in the header is not the plan's")
def layout_dtype(vector: Vector) -> None:
    set_header(vector, b'"BF16"', b'"I16" ')


@layout_lie("shape in the header is not the plan's, though the size is")
def layout_shape(vector: Vector) -> None:
    header = shards_of(vector)[b"m-2.safetensors"]
    reshaped = header.replace(b'"shape":[10]', b'"shape":[2,5]').rstrip()
    shards = shards_of(vector) | {b"m-2.safetensors": reshaped}
    set_layout_inner(vector, inner_bytes(shards, index_of(vector)))


@layout_lie("data_offsets leave a hole before the tensor")
def layout_hole(vector: Vector) -> None:
    set_header(vector, b'"data_offsets":[0,10]', b'"data_offsets":[2,12]')


@layout_lie("data_offsets disagree with the shape")
def layout_offsets(vector: Vector) -> None:
    set_header(vector, b'"data_offsets":[0,10]', b'"data_offsets":[0,11]')


@layout_lie("header is not JSON")
def layout_header_not_json(vector: Vector) -> None:
    set_header(vector, b'"b":{', b'"b"={')


@layout_lie("header with the same tensor twice")
def layout_header_duplicate(vector: Vector) -> None:
    header = shards_of(vector)[b"m-2.safetensors"].rstrip()
    entry = header[header.index(b'"b":') : -1]
    shards = shards_of(vector) | {b"m-2.safetensors": header[:-1] + b"," + entry + b"}"}
    set_layout_inner(vector, inner_bytes(shards, index_of(vector)))
