# SPDX-License-Identifier: Apache-2.0
"""Disk deltas: what Segue exports is read by plain Python and gives the target's bytes, what plain
Python writes is imported and gives the same; both ways for every encoding and checksum."""

import json
import os
import random

import blake3
import pytest

from disk_delta_support import (CHECKSUMS, ENCODINGS, INDEX, compress, read_delta, read_model,
                                safetensors_bytes, version_name, write_delta)
from e2e_support import copy_of, files_of, same_files, version_directory, write_safetensors

ALL = [(encoding, checksum) for encoding in ENCODINGS for checksum in CHECKSUMS]


def model_versions(count, seed=1):
    """[{name: bytes}]: a model with empty and tiny tensors; version 2 is version 1 again."""
    rng = random.Random(seed)
    model = {"layer.0.weight": rng.randbytes(300_000), "layer.1.weight": rng.randbytes(1_300_000),
             "scale": rng.randbytes(4), "empty": b"", "fixed": rng.randbytes(5000)}
    versions = [model]
    for step in range(1, count + 1):
        model = dict(model)
        for name in ("layer.0.weight", "layer.1.weight", "scale") if step != 2 else ():
            data = bytearray(model[name])
            for _ in range(len(data) // 500 + 1):
                data[rng.randrange(len(data))] ^= 1 + rng.randrange(255)
            model[name] = bytes(data)
        versions.append(model)
    return versions


def write_checkpoint(directory, model):
    return write_safetensors(directory, {
        name: ("BF16", [len(data) // 2], data) for name, data in model.items()})


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """Four versions of a model, and a checkpoint of each."""
    folder = tmp_path_factory.mktemp("chain")
    versions = model_versions(4)
    for number, model in enumerate(versions):
        write_checkpoint(folder / f"v{number}", model)
    return folder, versions


@pytest.fixture(scope="module")
def chain_store(segue, chain):
    folder, versions = chain
    for number in range(1, len(versions)):
        segue("publish", "--store", folder / "store", "--base", folder / f"v{number - 1}",
              "--target", folder / f"v{number}", "--version", number)
    return folder / "store"


def export(segue, store, base, output, *arguments):
    return segue("export-disk-delta", "--store", store, "--base", base, "--output", output,
                 *arguments)


@pytest.mark.parametrize("encoding,checksum", ALL)
def test_export_is_read_by_plain_python(segue, chain, chain_store, tmp_path, encoding, checksum):
    folder, versions = chain
    report = export(segue, chain_store, folder / "v0", tmp_path, "--encoding", encoding,
                    "--checksum", checksum, "--shards", 3)
    assert [entry["number"] for entry in report["versions"]] == [1, 2, 3, 4]
    assert sorted(os.listdir(tmp_path)) == [version_name(n) for n in range(1, 5)]
    model = versions[0]
    for number in range(1, 5):
        directory = tmp_path / version_name(number)
        metadata = json.loads((directory / INDEX).read_text())["metadata"]
        assert metadata["delta_encoding"] == encoding and metadata["checksum_format"] == checksum
        model = read_delta(directory, model)
        assert model == versions[number]
        size = sum(path.stat().st_size for path in directory.iterdir())
        assert size == report["versions"][number - 1]["bytes"]
        assert oct(directory.stat().st_mode & 0o777) == oct(0o777 & ~umask())
    assert len(os.listdir(tmp_path / version_name(2))) == 1  # Nothing changed: an index alone.


def umask():
    value = os.umask(0)
    os.umask(value)
    return value


@pytest.mark.parametrize("name", ("bf16", "fp8", "nvfp4"))
def test_export_of_the_recorded_trace(segue, trace_stores, tmp_path, name):
    model = read_model(version_directory(name, 2))
    export(segue, trace_stores[name], version_directory(name, 2), tmp_path, "--to", 6,
           "--encoding", "overwrite", "--shards", 2)
    for number in range(3, 7):
        model = read_delta(tmp_path / version_name(number), model)
        assert model == read_model(version_directory(name, number))


def test_export_refuses(segue, trace_stores, trace, tmp_path):
    store, base = trace_stores["bf16"], version_directory("bf16", 2)
    arguments = ("export-disk-delta", "--store", store, "--output", tmp_path / "out", "--base")
    segue.fails("version_mismatch", *arguments, base, "--from", 3)
    segue.fails("version_mismatch", *arguments, version_directory("bf16", 5), "--to", 4)
    segue.fails("not_found", *arguments, base, "--to", 99)
    segue.fails("invalid_argument", *arguments, version_directory("fp8", 2))
    segue.fails("invalid_argument", *arguments, base, "--encoding", "zip")
    segue.fails("invalid_argument", *arguments, base, "--checksum", "md5")
    segue.fails("invalid_argument", *arguments, base, "--shards", 0)
    segue.fails("invalid_argument", *arguments, base, "--shards", 100_000)
    segue.fails("invalid_argument", *arguments, base, "--first", 999_999)
    assert not (tmp_path / "out").exists()
    export(segue, store, base, tmp_path / "out", "--to", 4)
    before = files_of(tmp_path / "out" / version_name(4))
    message = segue.fails("invalid_argument", *arguments, base, "--to", 5)
    assert "exists already" in message and not (tmp_path / "out" / version_name(5)).exists()
    export(segue, store, version_directory("bf16", 4), tmp_path / "out", "--to", 5)
    assert files_of(tmp_path / "out" / version_name(4)) == before


def test_numbers_with_gaps_are_numbered_anew(segue, chain, tmp_path):
    folder, versions = chain
    for number, version in ((1, 10), (3, 30)):
        segue("publish", "--store", tmp_path / "store", "--base",
              folder / f"v{number - 1 if number == 1 else 1}", "--target", folder / f"v{number}",
              "--version", version)
    arguments = ("export-disk-delta", "--store", tmp_path / "store", "--base", folder / "v0",
                 "--output", tmp_path / "out")
    assert "--first" in segue.fails("invalid_argument", *arguments)
    report = segue(*arguments, "--first", 7)
    assert [(entry["version"], entry["number"]) for entry in report["versions"]] == [
        (10, 7), (30, 8)]
    model = read_delta(tmp_path / "out" / version_name(7), versions[0])
    assert read_delta(tmp_path / "out" / version_name(8), model) == versions[3]


def write_source(source, versions, encoding="xor", checksum="xxh3-128", ranks=2):
    for number in range(1, len(versions)):
        write_delta(source, number, versions[number - 1], versions[number], encoding, checksum,
                    ranks)
    return source


def import_from(segue, source, store, base, *arguments):
    return segue("import-disk-delta", "--source", source, "--store", store, "--base", base,
                 *arguments)


@pytest.mark.parametrize("encoding,checksum", ALL)
def test_import_of_what_plain_python_writes(segue, chain, tmp_path, encoding, checksum):
    folder, versions = chain
    source = write_source(tmp_path / "source", versions, encoding, checksum)
    report = import_from(segue, source, tmp_path / "store", folder / "v0", "--lineage", "run")
    assert [entry["version"] for entry in report["versions"]] == [1, 2, 3, 4]
    assert not any(entry["already_published"] or entry["full"] for entry in report["versions"])
    for number in (1, 2, 4):
        segue("apply", "--store", tmp_path / "store", "--lineage", "run", "--checkpoint",
              folder / "v0", "--output", tmp_path / f"v{number}", "--to", number)
        assert read_model(tmp_path / f"v{number}") == versions[number]
        assert same_files(folder / f"v{number}", tmp_path / f"v{number}")
    again = import_from(segue, source, tmp_path / "store", folder / "v0", "--lineage", "run")
    assert all(entry["already_published"] for entry in again["versions"])


def test_there_and_back(segue, chain, chain_store, tmp_path):
    """Exported, imported: the same versions, by their digests."""
    folder, versions = chain
    export(segue, chain_store, folder / "v0", tmp_path / "out", "--encoding", "overwrite",
           "--checksum", "blake3", "--shards", 2)
    import_from(segue, tmp_path / "out", tmp_path / "store", folder / "v0")
    for number in range(1, len(versions)):
        verified = segue("verify", "--store", tmp_path / "store", "--checkpoint",
                         folder / f"v{number}")
        original = segue("verify", "--store", chain_store, "--checkpoint", folder / f"v{number}")
        assert verified["digest"] == original["digest"]


def test_full_checkpoints_become_differences(segue, chain, tmp_path):
    folder, versions = chain
    source = tmp_path / "source"
    write_delta(source, 1, versions[0], versions[1])
    copy_of(folder / "v3", source / version_name(2))
    write_delta(source, 3, versions[3], versions[4])
    report = import_from(segue, source, tmp_path / "store", folder / "v0")
    assert [entry["full"] for entry in report["versions"]] == [False, True, False]
    engine = copy_of(folder / "v0", tmp_path / "engine")
    segue("apply", "--store", tmp_path / "store", "--checkpoint", engine, "--to", 2)
    assert read_model(engine) == versions[3]
    segue("apply", "--store", tmp_path / "store", "--checkpoint", engine)
    assert read_model(engine) == versions[4]


def test_full_checkpoint_of_another_model_is_refused(segue, chain, tmp_path):
    folder, versions = chain
    write_delta(tmp_path / "source", 1, versions[0], versions[1])
    other = {**versions[1], "another": b"xx"}
    write_checkpoint(tmp_path / "source" / version_name(2), other)
    message = segue.fails("invalid_argument", "import-disk-delta", "--source", tmp_path / "source",
                          "--store", tmp_path / "store", "--base", folder / "v0")
    assert "version 2" in message and "another" in message and "lineage of its own" in message
    assert segue("verify", "--store", tmp_path / "store", "--checkpoint", folder / "v1")[
        "version"] == 1


def test_parts_of_a_source(segue, chain, tmp_path):
    folder, versions = chain
    source = write_source(tmp_path / "source", versions)
    report = import_from(segue, source, tmp_path / "store", folder / "v2", "--from", 2, "--to", 3)
    assert report["from"] == 2 and [entry["version"] for entry in report["versions"]] == [3]
    segue.fails("not_found", "import-disk-delta", "--source", tmp_path, "--store",
                tmp_path / "other", "--base", folder / "v0")
    segue.fails("invalid_argument", "import-disk-delta", "--source", source, "--store",
                tmp_path / "other", "--base", folder / "v0", "--from", 4)
    os.rename(source / version_name(3), tmp_path / "away")
    message = segue.fails("not_found", "import-disk-delta", "--source", source, "--store",
                          tmp_path / "other", "--base", folder / "v0")
    assert version_name(3) in message


# --- Lies -----------------------------------------------------------------------------------------


NAME, SHARD = "layer.0.weight", "model-00000-of-00001.safetensors"


class Liar:
    """Sources whose version 1 lies in one thing."""

    def __init__(self, folder, versions):
        self.folder, self.old, self.new = folder, versions[0], versions[1]

    def make(self, what, frames=None, checksums=None, metadata=None, weight_map=None,
             encoding="xor", dtype="U8", files=(), unnamed=()):
        """`frames`: instead of the true ones; the rest is put over what is true."""
        directory = write_delta(self.folder / what, 1, self.old, self.new, encoding)
        index = json.loads((directory / INDEX).read_text())
        if frames is not None:
            stated = {name: CHECKSUMS["xxh3-128"](self.new.get(name, b"")) for name in frames}
            entries = {name: (dtype, [len(frame)], frame) for name, frame in frames.items()}
            (directory / SHARD).write_bytes(
                safetensors_bytes(entries, {**stated, **(checksums or {})}))
            index["weight_map"] = {name: SHARD for name in frames}
        index["metadata"].update(metadata or {})
        index["weight_map"].update(weight_map or {})
        for name in unnamed:
            del index["weight_map"][name]
        (directory / INDEX).write_text(json.dumps(index))
        for file, content in files:
            (directory / file).write_bytes(content)
        return self.folder / what


def lying_sources(folder, versions):
    """{what: (code, directory)}."""
    liar = Liar(folder, versions)
    make, name, shard = liar.make, NAME, SHARD
    old, new = liar.old, liar.new

    def overwrite(what, content, frame=None):
        return make(what, {name: frame or compress(content)}, encoding="overwrite")

    def u32(*values):
        return b"".join(value.to_bytes(4, "little") for value in values)

    size = len(old[name])
    good = compress(bytes(a ^ b for a, b in zip(old[name], new[name])))
    stray = safetensors_bytes({name: ("U8", [len(good)], good)}, {name: "0" * 32})
    return {
        "checksum": ("corruption", make("checksum", {name: good}, {name: "0" * 32})),
        "no-checksum": ("corruption", make("no-checksum", {name: good}, {name: ""})),
        "short": ("corruption", make("short", {name: compress(bytes(size - 1))})),
        "bomb": ("corruption", make("bomb", {name: compress(bytes(500_000_000))})),
        "two-frames": ("corruption", make("two-frames", {name: good + good})),
        "no-frame": ("corruption", make("no-frame", {name: b"nothing"})),
        "empty-frame": ("corruption", make("empty-frame", {name: b""})),
        "large-frame": ("resource_exhausted", make("large-frame", {"scale": bytes(100_000)})),
        "dtype": ("corruption", make("dtype", {name: good}, dtype="I8")),
        "unknown-tensor": ("corruption", make("unknown-tensor", {"nobody": good})),
        "not-in-map": ("corruption", make("not-in-map", weight_map={"fixed": shard})),
        "outside": ("corruption", make("outside", weight_map={name: "../x.safetensors"})),
        "absolute": ("corruption", make("absolute", weight_map={name: "/x.safetensors"})),
        "unnamed": ("corruption", make("unnamed", unnamed=["scale"])),
        "empty-tensor": ("corruption", make("empty-tensor", {"empty": compress(b"x")})),
        "missing-shard": ("not_found", make("missing-shard",
                                            weight_map={name: "model-00009-of-00010.safetensors"})),
        "stray-shard": ("corruption", make("stray-shard", files=[("stray.safetensors", stray)])),
        "tensor-twice": ("corruption", make(
            "tensor-twice", weight_map={"fixed": "second.safetensors"},
            files=[("second.safetensors", stray)])),
        "cut-shard": ("corruption", make("cut-shard", files=[(shard, stray[:-1])])),
        "number": ("corruption", make("number", metadata={"version": "000002"})),
        "digits": ("corruption", make("digits", metadata={"base_version": "0"})),
        "base": ("version_mismatch", make("base", metadata={"base_version": "000003"})),
        "compression": ("unsupported", make("compression",
                                            metadata={"compression_format": "lz4"})),
        "encoding": ("unsupported", make("encoding", metadata={"delta_encoding": "add"})),
        "encoding-type": ("corruption", make("encoding-type", metadata={"delta_encoding": 1})),
        "kind": ("unsupported", make("kind", metadata={"checksum_format": "md5"})),
        "count": ("corruption", overwrite("count", u32(2, 5, 6) + b"a")),
        "count-huge": ("corruption", overwrite("count-huge", u32(0xffffffff) + bytes(10))),
        "unsorted": ("corruption", overwrite("unsorted", u32(2, 6, 5) + b"ab")),
        "repeated": ("corruption", overwrite("repeated", u32(2, 5, 5) + b"ab")),
        "range": ("corruption", overwrite("range", u32(1, size) + b"a")),
        "content": ("corruption", overwrite("content", u32(1, 5) + b"abc")),
        "overwrite-bomb": ("corruption", overwrite("overwrite-bomb", bytes(4 + 5 * 10_000_000))),
        "no-content-size": ("corruption", overwrite(
            "no-content-size", b"", unsized_frame(u32(1, 5) + b"a"))),
    }


def unsized_frame(content):
    import zstandard
    return zstandard.ZstdCompressor(level=1, write_content_size=False).compress(content)


LIES = ("unnamed", "empty-tensor", "checksum", "no-checksum", "short", "bomb", "two-frames",
        "no-frame", "empty-frame", "large-frame", "dtype", "unknown-tensor", "not-in-map",
        "outside", "absolute",
        "missing-shard", "stray-shard", "tensor-twice", "cut-shard", "number", "digits", "base",
        "compression", "encoding", "encoding-type", "kind", "count", "count-huge", "unsorted",
        "repeated", "range", "content", "overwrite-bomb", "no-content-size")


@pytest.fixture(scope="module")
def lies(chain, tmp_path_factory):
    made = lying_sources(tmp_path_factory.mktemp("lies"), chain[1])
    assert set(made) == set(LIES)
    return made


@pytest.mark.parametrize("what", LIES)
def test_lies_are_not_imported(segue, chain, lies, tmp_path, what):
    folder, _ = chain
    code, source = lies[what]
    segue.fails(code, "import-disk-delta", "--source", source, "--store", tmp_path / "store",
                "--base", folder / "v0")
    assert not list((tmp_path / "store").rglob("*.json"))


def test_wrong_base_is_found_by_the_checksum(segue, chain, tmp_path):
    folder, versions = chain
    source = write_source(tmp_path / "source", versions)
    message = segue.fails("corruption", "import-disk-delta", "--source", source, "--store",
                          tmp_path / "store", "--base", folder / "v3")
    assert "xxh3-128" in message and "version 0" in message


# --- BLAKE3 ---------------------------------------------------------------------------------------


def test_blake3_against_another_implementation(segue, tmp_path):
    """Through an export: one tensor of each length, whose byte i is i mod 251."""
    lengths = sorted({*range(0, 70), *range(960, 1100), 2047, 2048, 2049, 3072, 4095, 4096, 4097,
                      5000, 8191, 8192, 8193, 16384, 16385, 31744, 65536, 102400, 1_000_003} - {0})
    new = {f"t{size}": bytes(i % 251 for i in range(size)) for size in lengths}
    old = {name: bytes(255 - byte for byte in data) for name, data in new.items()}
    for directory, model in (("old", old), ("new", new)):
        write_safetensors(tmp_path / directory, {
            name: ("U8", [len(data)], data) for name, data in model.items()})
    segue("publish", "--store", tmp_path / "store", "--base", tmp_path / "old", "--target",
          tmp_path / "new")
    export(segue, tmp_path / "store", tmp_path / "old", tmp_path / "out", "--checksum", "blake3")
    assert read_delta(tmp_path / "out" / version_name(1), old) == new
    assert blake3.blake3(b"").hexdigest().startswith("af1349b9")
