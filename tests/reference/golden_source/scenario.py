# SPDX-License-Identifier: Apache-2.0
"""From tensors and encoding choices to the files of one golden vector.

A `Vector` keeps every object in a form that a lie can change in one place; `files_of` then fills in
the hashes, sizes and sums that follow, so that a reader meets that one lie and no other.
"""

import hashlib
import json
from dataclasses import dataclass, field

import numpy as np

from segue_reference import digest
from segue_reference.apply import model_digest
from segue_reference.dtypes import BY_NAME
from segue_reference.encode import (
    USUALLY_COMPRESSED,
    Choice,
    Draft,
    draft_payload,
    layout_bytes,
    layout_object,
    plan_bytes,
    serialize,
)
from segue_reference.layout import inner_bytes
from segue_reference.manifest import payload_name
from segue_reference.plan import Plan, parse_plan
from segue_reference.safetensors_reader import INDEX_NAME

LINEAGE = "golden"


@dataclass(frozen=True)
class TensorSpec:
    name: str
    dtype: str
    shape: tuple[int, ...]
    base: bytes
    target: bytes


@dataclass
class Shards:
    """How a checkpoint lies in files: for each shard the tensors in order of their data.
    `pad` is what the header is filled up to a multiple of; `ascii` escapes names in the header."""

    names: dict[str, list[str]]
    metadata: dict[str, str] | None = None
    index: bool = False
    pad: int = 8
    ascii: bool = False


@dataclass
class Vector:
    """`manifest` holds fields that win over computed ones; `manifest_text` wins over all."""

    plan: bytes
    layout: bytes
    layout_inner: bytes
    payloads: list[Draft | bytes]
    base_files: dict[str, bytes]
    target_files: dict[str, bytes]
    computed: dict
    manifest: dict = field(default_factory=dict)
    entries: dict[int, dict] = field(default_factory=dict)
    manifest_text: bytes | None = None
    record_file: str = "manifest.json"  # Or "anchor.json".


def noise(label: str, size: int) -> bytes:
    """Bytes that depend on nothing but the label."""
    return hashlib.shake_128(label.encode()).digest(size)


def flip(base: bytes, width: int, masks: dict[int, bytes]) -> bytes:
    """`base` with the masks XORed onto the elements at the given positions."""
    elements = np.frombuffer(base, dtype=np.uint8).reshape(-1, width).copy()
    for position, mask in masks.items():
        elements[position] ^= np.frombuffer(mask, dtype=np.uint8)
    return elements.tobytes()


def flip_every(label: str, base: bytes, width: int, step: int, first: int = 0) -> bytes:
    """`base` with every `step`-th element changed by a mask in which each byte is non-zero."""
    count = len(base) // width
    stream = noise(label, count * width)
    masks = {}
    for p in range(first, count, step):
        masks[p] = bytes(b or 1 for b in stream[p * width : (p + 1) * width])
    return flip(base, width, masks)


def spec(name: str, dtype: str, shape: list[int], base: bytes, target: bytes) -> TensorSpec:
    return TensorSpec(name, dtype, tuple(shape), base, target)


def header_of(tensors: list[TensorSpec], shards: Shards) -> bytes:
    fields: dict = {}
    if shards.metadata is not None:
        fields["__metadata__"] = shards.metadata
    begin = 0
    for tensor in tensors:
        end = begin + len(tensor.base)
        fields[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=shards.ascii).encode()
    return text + b" " * (-len(text) % shards.pad)


def checkpoint_files(
    tensors: list[TensorSpec], shards: Shards, data: dict[bytes, bytes]
) -> tuple[dict[str, bytes], dict[bytes, bytes], bytes]:
    """Files of a checkpoint, and the layout that they have (headers by shard, index)."""
    by_name = {tensor.name: tensor for tensor in tensors}
    files, headers = {}, {}
    for shard, names in shards.names.items():
        header = header_of([by_name[name] for name in names], shards)
        body = b"".join(data[name.encode()] for name in names)
        files[shard] = len(header).to_bytes(8, "little") + header + body
        headers[shard.encode()] = header
    index = b""
    if shards.index:
        weight_map = {name: shard for shard, names in shards.names.items() for name in names}
        size = sum(len(tensor.base) for tensor in tensors)
        fields = {"metadata": {"total_size": size}, "weight_map": weight_map}
        index = json.dumps(fields, indent=2).encode() + b"\n"
        files[INDEX_NAME] = index
    return files, headers, index


def plan_of(tensors: list[TensorSpec], chunk_size_log2: int) -> bytes:
    """The plan object; tensors in ascending order of the names' bytes."""
    records = [(t.name.encode(), BY_NAME[t.dtype].code, list(t.shape)) for t in tensors]
    return plan_bytes(sorted(records), chunk_size_log2)


def computed_fields(
    plan: Plan, base: dict[bytes, bytes], target: dict[bytes, bytes], layouts: tuple[str, str]
) -> dict:
    return {
        "format": "segue-manifest",
        "format_version": 1,
        "lineage": LINEAGE,
        "base_version": 1,
        "target_version": 2,
        "plan": plan.digest,
        "base_layout": layouts[0],
        "target_layout": layouts[1],
        "base_digest": digest.text(model_digest(plan, base)),
        "target_digest": digest.text(model_digest(plan, target)),
        "profile": "sparse-zstd",
        "model_bytes": plan.model_size,
    }


def build(
    tensors: list[TensorSpec],
    owners: list[list[list[Choice]]],
    *,
    shards: Shards | None = None,
    target_shards: Shards | None = None,
    chunk_size_log2: int = 12,
    compressed: frozenset[int] = USUALLY_COMPRESSED,
) -> Vector:
    """A truthful vector. `owners` holds for each owner its groups of choices."""
    shards = shards or Shards({"model.safetensors": [tensor.name for tensor in tensors]})
    base = {tensor.name.encode(): tensor.base for tensor in tensors}
    target = {tensor.name.encode(): tensor.target for tensor in tensors}
    plan_object = plan_of(tensors, chunk_size_log2)
    plan = parse_plan(plan_object)
    base_files, *base_layout = checkpoint_files(tensors, shards, base)
    target_files, *target_layout = checkpoint_files(tensors, target_shards or shards, target)
    layout, layout_digest = layout_bytes(*target_layout)
    digests = layout_bytes(*base_layout)[1], layout_digest
    payloads = [draft_payload(plan, groups, base, target, compressed) for groups in owners]
    return Vector(
        plan_object,
        layout,
        inner_bytes(*target_layout),
        list(payloads),
        base_files,
        target_files,
        computed_fields(plan, base, target, digests),
    )


def set_layout_inner(vector: Vector, inner: bytes) -> None:
    """Another inner part, with the digest that belongs to it."""
    vector.layout_inner = inner
    vector.layout = layout_object(inner)
    vector.manifest["target_layout"] = hashlib.sha256(inner).hexdigest()


def make_anchor(vector: Vector, name: str, base: int, target: int) -> None:
    """The same update as the delta of an anchor."""
    vector.record_file = "anchor.json"
    vector.manifest |= {"format": "segue-anchor", "anchor": name}
    vector.manifest |= {"base_version": base, "target_version": target}
    folder = f"{LINEAGE}/anchors/{name}/{base:010}-{target:010}"
    for owner in range(len(vector.payloads)):
        vector.entries[owner] = {"object": f"{folder}/{owner:05}-of-{len(vector.payloads):05}-0"}


def set_plan(vector: Vector, plan: bytes) -> None:
    """Another plan object, with the digest that belongs to it."""
    vector.plan = plan
    vector.manifest["plan"] = hashlib.sha256(plan).hexdigest()


def _entry(vector: Vector, owner: int, data: bytes, rows: int) -> dict:
    fields = vector.computed | vector.manifest
    sha256 = hashlib.sha256(data).hexdigest()
    count, version = len(vector.payloads), fields["target_version"]
    version = version if type(version) is int else 2
    entry = {
        "owner": owner,
        "object": payload_name(LINEAGE, version, owner, count, sha256),
        "size": len(data),
        "sha256": sha256,
        "rows": rows,
    }
    return entry | vector.entries.get(owner, {})


def files_of(vector: Vector) -> dict[str, bytes]:
    """All files of the vector but the target: path to bytes."""
    drafts = [payload for payload in vector.payloads if isinstance(payload, Draft)]
    rows = [row for draft in drafts for row in draft.rows]
    sums = {
        "changed_chunks": len(rows),
        "changed_elements": sum(row["change_count"] for row in rows),
    }
    files = {"plan.bin": vector.plan, "layout.bin": vector.layout}
    entries = []
    for owner, payload in enumerate(vector.payloads):
        data = serialize(payload) if isinstance(payload, Draft) else payload
        count = len(payload.rows) if isinstance(payload, Draft) else 0
        files[f"payload-{owner:05}.bin"] = data
        entries.append(_entry(vector, owner, data, count))
    fields = vector.computed | sums | {"payloads": entries} | vector.manifest
    text = json.dumps(fields, indent=1).encode() + b"\n"
    files[vector.record_file] = text if vector.manifest_text is None else vector.manifest_text
    files |= {f"base/{name}": data for name, data in vector.base_files.items()}
    return files


def target_files_of(vector: Vector) -> dict[str, bytes]:
    return {f"target/{name}": data for name, data in vector.target_files.items()}
