# SPDX-License-Identifier: Apache-2.0
"""The reference decoder against itself, against libraries, and against the golden files."""

import hashlib
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

import apply_delta
import make_golden
from golden_source.invalid import every_encoding, one_tensor, two_shards
from golden_source.scenario import Vector, build, files_of, flip_every, noise, spec
from segue_reference import limits, lz4_block, snappy_block, writers, zstd_frame
from segue_reference.apply import Tensors, apply_update
from segue_reference.dtypes import ALL, BY_CODE
from segue_reference.encode import Choice, elias_fano, plan_bytes, serialize
from segue_reference.encodings import positions_of
from segue_reference.errors import CORRUPTION, RESOURCE_EXHAUSTED, UNSUPPORTED, Refusal
from segue_reference.layout import build_files, layout_of, parse_layout
from segue_reference.manifest import Manifest, parse_manifest, parse_step
from segue_reference.payload import parse_payload
from segue_reference.plan import parse_plan
from segue_reference.safetensors_reader import parse_header, read_checkpoint
from segue_reference.table import Row

SCRIPT = Path(__file__).with_name("apply_delta.py")
VALID = sorted(path for path in (make_golden.GOLDEN / "valid").iterdir())
INVALID = sorted(path for path in (make_golden.GOLDEN / "invalid").iterdir())
ENCODINGS = ("sparse", "planes", "snappy", "lz4", "zstd", "raw")
RECORDS = ("anchor.json", "manifest.json")
DTYPE_OF_WIDTH = {1: "U8", 2: "BF16", 4: "F32", 8: "F64"}


def apply_folder(folder: Path) -> dict[str, bytes]:
    payloads = sorted(folder.glob("payload-*.bin"))
    record = next(folder / name for name in RECORDS if (folder / name).exists())
    files = folder / "plan.bin", folder / "layout.bin", record
    return apply_delta.apply_files(*files, payloads, folder / "base")


def apply_vector(vector: Vector, base: Tensors) -> Tensors:
    files = files_of(vector)
    plan, layout = parse_plan(files["plan.bin"]), parse_layout(files["layout.bin"])
    objects = [data for name, data in sorted(files.items()) if name.startswith("payload-")]
    record = next(files[name] for name in RECORDS if name in files)
    return apply_update(plan, layout, parse_step(record), objects, base)


def refusal(function, *arguments) -> Refusal:
    with pytest.raises(Refusal) as caught:
        function(*arguments)
    return caught.value


# Golden files.


@pytest.mark.parametrize("folder", VALID, ids=lambda path: path.name)
def test_golden_valid(folder: Path):
    target = {path.name: path.read_bytes() for path in (folder / "target").iterdir()}
    assert apply_folder(folder) == target


@pytest.mark.parametrize("folder", INVALID, ids=lambda path: path.name)
def test_golden_invalid(folder: Path):
    expected = json.loads((folder / "expected.json").read_text())
    caught = refusal(apply_folder, folder)
    assert (caught.code, caught.object_name) == (expected["code"], expected["object"])


def test_golden_files_are_what_the_generator_writes():
    readme = (make_golden.GOLDEN / "README.md").read_text()
    if f"libzstd {make_golden.ZSTD_RELEASE}." not in readme.replace("\n", " "):
        pytest.skip("golden files were compressed by another release of libzstd")
    assert make_golden.differences(make_golden.golden_files()) == []


# Encodings.


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_round_trip(encoding: str, width: int):
    """Chunks of one element, of a few, and two with a short second; few and all changed. A block
    that came out larger than its chunk is refused: its encoder should have taken `raw`."""
    for count in (1, 2, 63, 64, 65, 4096 // width + 1):
        for step in (1, 5, 40):
            base = noise(f"{count}", count * width)
            target = flip_every(f"mask {count}", base, width, step)
            chunks = [0, 1] if count * width > 4096 and target[4096:] != base[4096:] else [0]
            choices = [Choice(b"t", encoding, chunk=chunk) for chunk in chunks]
            tensor = spec("t", DTYPE_OF_WIDTH[width], [count], base, target)
            vector = build([tensor], [[choices]])
            if any(row["dense_size"] > row["inner_size"] for row in vector.payloads[0].rows):
                assert refusal(apply_vector, vector, {b"t": base}).code == CORRUPTION
            else:
                assert apply_vector(vector, {b"t": base}) == {b"t": target}


@pytest.mark.parametrize("low_bits", range(limits.LOW_BITS_MAX + 1))
def test_positions_round_trip(low_bits: int):
    generator = random.Random(low_bits)
    for count, n in ((1, 1), (64, 64), (1000, 1), (1000, 37), (4096, 4096), (4096, 500)):
        positions = sorted(generator.sample(range(count), n))
        low, high = elias_fano(positions, count, low_bits)
        row = sparse_row(count, n, low_bits)
        assert len(low) == row.stream_sizes()[0] and len(high) == row.stream_sizes()[1]
        assert positions_of(row, {0: low, 1: high}).tolist() == positions


def sparse_row(count: int, n: int, low_bits: int) -> Row:
    """A row of one U8 chunk, as far as positions need it."""
    plan = parse_plan(plan_bytes([(b"t", 5, [count])], 24))
    return Row(0, plan.place(0), 1, low_bits, 1, 0, n, 0, 0, 0, (0, 0), (0, 0))


def test_positions_by_hand():
    """[3, 4, 6] of 8 with one low bit: low is 1, 0, 0; high has ones at 1 + 0, 2 + 1, 3 + 2."""
    low, high = elias_fano([3, 4, 6], 8, 1)
    assert low == b"\x01" + bytes(7)
    assert high == b"\x2a" + bytes(7)


def test_dtypes():
    assert [dtype.code for dtype in ALL] == list(range(1, 23))
    assert (BY_CODE[15].name, BY_CODE[15].bits, BY_CODE[15].width) == ("BF16", 16, 2)
    assert (BY_CODE[19].name, BY_CODE[19].bits, BY_CODE[19].width) == ("C64", 64, 4)
    assert all(dtype.bits % (8 * dtype.width) == 0 for dtype in ALL if dtype.bits >= 8)


# Codecs.


def codec_samples() -> list[bytes]:
    generator = random.Random(1)
    samples = []
    for size in (1, 3, 4, 12, 13, 31, 64, 300, 5000, 70000):
        samples += [bytes(size), generator.randbytes(size)]
        samples.append(bytes(generator.choice(b"\0\0\0\1ab") for _ in range(size)))
    return samples


def test_snappy_and_lz4_decode_what_the_writers_write():
    for data in codec_samples():
        assert snappy_block.decode(writers.snappy_block(data), len(data)) == data
        assert lz4_block.decode(writers.lz4_block(data), len(data)) == data


def test_snappy_and_lz4_against_libraries():
    cramjam = pytest.importorskip("cramjam")
    for data in codec_samples():
        packed = bytes(cramjam.snappy.compress_raw(data))
        assert snappy_block.decode(packed, len(data)) == data
        assert bytes(cramjam.snappy.decompress_raw(writers.snappy_block(data))) == data
        packed = bytes(cramjam.lz4.compress_block(data, store_size=False))
        assert lz4_block.decode(packed, len(data)) == data
        ours = writers.lz4_block(data)
        assert bytes(cramjam.lz4.decompress_block(ours, output_len=len(data))) == data


def test_snappy_by_hand():
    """The varint of 12, a literal of 4, a copy of 8 from 4 back."""
    assert snappy_block.decode(b"\x0c\x0cabcd\x11\x04", 12) == b"abcdabcdabcd"


def test_xxh64_known_values():
    assert writers.xxh64(b"") == 0xEF46DB3751D8E999
    assert writers.xxh64(b"abc") == 0x44BC2CF5AD770999


def test_zstd_frames():
    for data in codec_samples():
        for level in (1, 19):
            packed = zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data)
            assert zstd_frame.decode(packed, len(data), "x", needs_checksum=True) == data
        ours = writers.zstd_frame(data)
        assert zstandard.ZstdDecompressor().decompress(ours) == data
        assert refusal(zstd_frame.decode, ours, len(data) + 1, "x").code == CORRUPTION


# Objects that lie, beyond the golden files.


def damaged(data: bytes) -> list[bytes]:
    """One bit flipped in each byte, and every proper prefix."""
    flips = [data[:i] + bytes([data[i] ^ 1 << (i % 8)]) + data[i + 1 :] for i in range(len(data))]
    return flips + [data[:i] for i in range(len(data))]


def test_damaged_payload_is_refused_or_harmless():
    """Hash and size agree, so that what is tried is the format and its digests."""
    vector = every_encoding()
    data = serialize(vector.payloads[0])
    rows = vector.payloads[0].rows
    count = sum(row["change_count"] for row in rows)
    vector.manifest = {"changed_chunks": len(rows), "changed_elements": count}
    vector.entries = {0: {"rows": len(rows)}}
    file = vector.base_files["model.safetensors"]
    plan, layout = parse_plan(vector.plan), parse_layout(vector.layout)
    target_file = vector.target_files["model.safetensors"]
    base = tensors_of(file)
    for bad in damaged(data):
        vector.payloads = [bad]
        manifest = parse_manifest(files_of(vector)["manifest.json"])
        try:
            target = apply_update(plan, layout, manifest, [bad], base)
        except Refusal:
            continue
        assert build_files(layout, target) == {"model.safetensors": target_file}


def tensors_of(file: bytes) -> Tensors:
    header_size = int.from_bytes(file[:8], "little")
    header, data = file[8 : 8 + header_size], file[8 + header_size :]
    entries = parse_header(header, "base")
    return {entry.name: data[entry.begin : entry.begin + entry.size] for entry in entries}


@pytest.mark.parametrize("name", ["plan.bin", "layout.bin", "manifest.json"])
def test_damaged_objects_raise_nothing_but_refusals(name: str):
    parse = {"plan.bin": parse_plan, "layout.bin": parse_layout, "manifest.json": parse_manifest}
    data = files_of(two_shards())[name]
    for bad in damaged(data):
        try:
            parse[name](bad)
        except Refusal:
            pass


def test_limits_without_large_golden_files():
    manifest = files_of(one_tensor())["manifest.json"]
    padded = manifest + b" " * (limits.MANIFEST_SIZE - len(manifest))
    assert isinstance(parse_manifest(padded), Manifest)
    assert refusal(parse_manifest, padded + b" ").code == RESOURCE_EXHAUSTED
    largest = plan_bytes([(b"n" * 4096, 5, [1] * 31 + [1 << 44])], 12)
    assert parse_plan(largest).chunk_count == 1 << 32


def test_plan_places_chunks_around_empty_tensors():
    records = [(b"a", 5, [0]), (b"b", 5, [4097]), (b"c", 5, [0]), (b"d", 5, [1]), (b"e", 5, [0])]
    plan = parse_plan(plan_bytes(records, 12))
    places = [plan.place(chunk) for chunk in range(plan.chunk_count)]
    assert [(p.tensor.name, p.offset, p.size) for p in places] == [
        (b"b", 0, 4096),
        (b"b", 4096, 1),
        (b"d", 0, 1),
    ]


def test_header_rules():
    good = b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"__metadata__":{}}  '
    assert [entry.name for entry in parse_header(good, "x")] == [b"a"]
    for old, new in (
        (b'"shape":[2]', b'"shape":[2.0]'),
        (b'"shape":[2]', b'"shape":[-2]'),
        (b'"shape":[2]', b'"shape":[true,2]'),
        (b"[0,2]", b"[0,2,2]"),
        (b"[0,2]", b"[1,3]"),
        (b'"__metadata__":{}', b'"__metadata__":{"k":1}'),
        (b'{"a"', b' {"a"'),
    ):
        assert refusal(parse_header, good.replace(old, new), "x").code == CORRUPTION
    unknown = good.replace(b'"U8"', b'"X9"')
    assert refusal(parse_header, unknown, "x").code == UNSUPPORTED


# Command line.


def run(*arguments: str | Path) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def apply_arguments(folder: Path, output: Path) -> list[str | Path]:
    payloads = sorted(folder.glob("payload-*.bin"))
    arguments: list[str | Path] = ["--plan", folder / "plan.bin", "--base", folder / "base"]
    arguments += ["--manifest", folder / "manifest.json", "--output", output, "--payload"]
    return arguments + payloads


def test_command_line_applies(tmp_path: Path):
    folder = make_golden.GOLDEN / "valid" / "two-owners"
    done = run(*apply_arguments(folder, tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    for path in (folder / "target").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    manifest = json.loads((folder / "manifest.json").read_text())
    printed = run("digest", tmp_path / "out", "--plan", folder / "plan.bin")
    assert printed.stdout.strip() == manifest["target_digest"]


def test_command_line_needs_the_layout_where_it_changes(tmp_path: Path):
    folder = make_golden.GOLDEN / "valid" / "layout-changed"
    arguments = apply_arguments(folder, tmp_path / "out")
    assert run(*arguments).returncode == 1
    assert not (tmp_path / "out").exists()
    assert run("--layout", folder / "layout.bin", *arguments).returncode == 0
    target, result = read_checkpoint(folder / "target"), read_checkpoint(tmp_path / "out")
    assert layout_of(target) == layout_of(result) and target.tensors == result.tensors


def test_command_line_refuses_and_writes_nothing(tmp_path: Path):
    folder = make_golden.GOLDEN / "invalid" / "digest-after"
    done = run(*apply_arguments(folder, tmp_path / "out"))
    assert done.returncode == 1
    assert json.loads(done.stderr)["code"] == CORRUPTION
    assert not (tmp_path / "out").exists()


def test_command_line_inspects():
    folder = make_golden.GOLDEN / "valid" / "groups"
    done = run("inspect", "--plan", folder / "plan.bin", "--payload", folder / "payload-00000.bin")
    table = json.loads(done.stdout)
    assert [group["rows"] for group in table["groups"]] == [1, 4, 2]
    encodings = [row["encoding"] for row in table["rows"]]
    assert encodings == ["sparse", "raw", "snappy", "sparse", "lz4", "planes", "zstd"]


def test_checkpoint_needs_every_indexed_shard(tmp_path: Path):
    folder = make_golden.GOLDEN / "valid" / "layout-changed" / "target"
    shutil.copytree(folder, tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "model-00002-of-00002.safetensors").unlink()
    assert refusal(read_checkpoint, tmp_path / "checkpoint").code == "not_found"


def test_layout_digest_is_of_the_inner_bytes():
    vector = two_shards()
    inner = vector.layout_inner
    assert parse_layout(vector.layout).digest == hashlib.sha256(inner).hexdigest()


def test_rows_parse_in_ascending_order():
    vector = every_encoding()
    payload = parse_payload(serialize(vector.payloads[0]), parse_plan(vector.plan))
    assert [row.chunk for row in payload.rows] == list(range(7))
    assert [row.place.tensor.name for row in payload.rows] == [bytes([c]) for c in b"abcdfgh"]
