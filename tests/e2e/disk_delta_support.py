# SPDX-License-Identifier: Apache-2.0
"""Disk deltas in plain Python, written from docs/format.md, section 10, alone: a writer and a
reader that share nothing with Segue, so that each can judge the other."""

import json
import pathlib
import struct
import zlib

import blake3
import numpy
import xxhash
import zstandard

INDEX = "model.safetensors.index.json"
ENCODINGS = ("xor", "overwrite")
CHECKSUMS = {"xxh3-128": lambda data: xxhash.xxh3_128(data).hexdigest(),
             "blake3": lambda data: blake3.blake3(data).hexdigest(),
             "adler32": lambda data: f"{zlib.adler32(data):08x}"}


def version_name(version):
    return f"weight_v{version:06d}"


def read_safetensors(path):
    """({name: (dtype, shape, bytes)}, metadata)."""
    content = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    metadata = header.pop("__metadata__", {})
    data = content[8 + size:]
    ends = [entry["data_offsets"][1] for entry in header.values()]
    assert len(data) == max(ends, default=0)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}, metadata


def safetensors_bytes(tensors, metadata):
    """tensors: {name: (dtype, shape, bytes)}."""
    header, offset = {"__metadata__": metadata}, 0
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [offset, offset + len(content)]}
        offset += len(content)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def read_model(directory):
    """{name: bytes} of a checkpoint."""
    tensors = {}
    for path in sorted(pathlib.Path(directory).glob("*.safetensors")):
        for name, (_, _, content) in read_safetensors(path)[0].items():
            assert name not in tensors
            tensors[name] = content
    return tensors


def make_diff(encoding, old, new):
    """The content of one frame."""
    old, new = (numpy.frombuffer(data, numpy.uint8) for data in (old, new))
    if encoding == "xor":
        return (old ^ new).tobytes()
    positions = numpy.flatnonzero(old != new)
    return (struct.pack("<I", positions.size) + positions.astype("<u4").tobytes()
            + new[positions].tobytes())


def apply_diff(encoding, old, content):
    bytes_ = numpy.frombuffer(old, numpy.uint8).copy()
    if encoding == "xor":
        assert len(content) == len(old)
        return (bytes_ ^ numpy.frombuffer(content, numpy.uint8)).tobytes()
    count = struct.unpack("<I", content[:4])[0]
    assert len(content) == 4 + 5 * count
    positions = numpy.frombuffer(content[4:4 + 4 * count], "<u4")
    assert (numpy.diff(positions.astype(numpy.int64)) > 0).all()
    bytes_[positions] = numpy.frombuffer(content[4 + 4 * count:], numpy.uint8)
    return bytes_.tobytes()


def compress(content):
    return zstandard.ZstdCompressor(level=1).compress(content)


def decompress(encoding, frame, size):
    if encoding == "overwrite":  # As the receivers of others do: the frame says its content's size.
        assert zstandard.frame_content_size(frame) >= 4
        return zstandard.ZstdDecompressor().decompress(frame)
    reader = zstandard.ZstdDecompressor().stream_reader(frame)
    content = reader.read(size + 1)
    assert len(content) == size
    return content


def delta_metadata(version, encoding, checksum):
    return {"version": f"{version:06d}", "base_version": f"{version - 1:06d}",
            "delta_encoding": encoding, "compression_format": "zstd",
            "checksum_format": checksum}


def write_delta(source, version, old, new, encoding="xor", checksum="xxh3-128", ranks=1):
    """old, new: {name: bytes}. Tensors are dealt out to the ranks; a rank without changes has no
    shard."""
    directory = pathlib.Path(source) / version_name(version)
    directory.mkdir(parents=True)
    weight_map = {}
    for rank in range(ranks):
        names = [name for i, name in enumerate(sorted(new))
                 if i % ranks == rank and new[name] != old[name]]
        if not names:
            continue
        shard = f"model-{rank:05d}-of-{ranks:05d}.safetensors"
        frames = {name: compress(make_diff(encoding, old[name], new[name])) for name in names}
        entries = {name: ("U8", [len(frame)], frame) for name, frame in frames.items()}
        metadata = {name: CHECKSUMS[checksum](new[name]) for name in names}
        (directory / shard).write_bytes(safetensors_bytes(entries, metadata))
        weight_map.update({name: shard for name in names})
    index = {"metadata": delta_metadata(version, encoding, checksum), "weight_map": weight_map}
    (directory / INDEX).write_text(json.dumps(index))
    return directory


def read_delta(directory, model):
    """The model after a delta, from {name: bytes} before it; asserts every rule of the format."""
    directory = pathlib.Path(directory)
    index = json.loads((directory / INDEX).read_text())
    metadata, weight_map = index["metadata"], index["weight_map"]
    assert directory.name == version_name(int(metadata["version"]))
    assert int(metadata["base_version"]) == int(metadata["version"]) - 1
    assert len(metadata["version"]) == len(metadata["base_version"]) == 6
    assert metadata["compression_format"] == "zstd"
    shards = {path.name for path in directory.iterdir()} - {INDEX}
    assert shards == set(weight_map.values())
    target, found = dict(model), {}
    for shard in sorted(shards):
        tensors, checksums = read_safetensors(directory / shard)
        assert checksums.keys() == tensors.keys()
        for name, (dtype, shape, frame) in tensors.items():
            assert dtype == "U8" and shape == [len(frame)] and name not in found
            found[name] = shard
            content = decompress(metadata["delta_encoding"], frame, len(model[name]))
            target[name] = apply_diff(metadata["delta_encoding"], model[name], content)
            assert target[name] != model[name], "unchanged tensors are absent"
            assert CHECKSUMS[metadata["checksum_format"]](target[name]) == checksums[name]
    assert found == weight_map
    return target


def read_state(local):
    return json.loads((pathlib.Path(local) / ".weight_sync" / "state.json").read_text())["version"]
