# SPDX-License-Identifier: Apache-2.0
"""One update applied to a base: every check of the document, then the target's tensors.

Order of the checks: what each object says by itself, then what the objects say about each other,
then what they say about the base. The base is never changed; the result is a new dictionary.
"""

import hashlib

from . import digest
from .encodings import positions_of, target_of
from .errors import VERSION_MISMATCH, require
from .layout import Layout, check_layout
from .manifest import Manifest
from .payload import Payload, parse_payload
from .plan import Plan
from .table import SPARSE, Row

Tensors = dict[bytes, bytes]


def model_digest(plan: Plan, tensors: Tensors) -> digest.Digest:
    return digest.total(digest.digest_of(tensors[t.name], t.number) for t in plan.tensors)


def _open_payloads(plan: Plan, manifest: Manifest, objects: list[bytes]) -> list[Payload]:
    given, listed = len(objects), len(manifest.payloads)
    require(given == listed, "manifest", f"lists {listed} payloads, {given} were given")
    payloads = []
    for entry, data in zip(manifest.payloads, objects):
        where = f"owner {entry.owner}"
        same_size = len(data) == entry.size
        require(same_size, "payload", f"{where}: {len(data)} bytes, the manifest says {entry.size}")
        same_hash = hashlib.sha256(data).hexdigest() == entry.sha256
        require(same_hash, "payload", f"{where}: SHA-256 is not the manifest's")
        payload = parse_payload(data, plan)
        count = len(payload.rows)
        require(count == entry.rows, "manifest", f"{where}: rows {entry.rows}, payload has {count}")
        payloads.append(payload)
    return payloads


def _check_sums(manifest: Manifest, payloads: list[Payload]) -> None:
    """The rules of section 7 that bind all payloads together."""
    rows = [row for payload in payloads for row in payload.rows]
    distinct = len({row.chunk for row in rows}) == len(rows)
    require(distinct, "payload", "a chunk has rows in two payloads")
    require(manifest.changed_chunks == len(rows), "manifest", "changed_chunks is not the sum")
    changed = sum(row.change_count for row in rows)
    require(manifest.changed_elements == changed, "manifest", "changed_elements is not the sum")
    difference = digest.total(digest.subtract(row.after, row.before) for row in rows)
    expected = digest.subtract(manifest.target_digest, manifest.base_digest)
    require(difference == expected, "manifest", "digests of the rows do not add up to the model's")


def _apply_row(row: Row, parts: dict[int, bytes], base: bytes) -> bytes:
    """One chunk: `before` and `touched` against the base, `after` against the result."""
    tensor, offset = row.place.tensor.number, row.place.offset
    where = f"chunk {row.chunk}"
    before = digest.digest_of(base, tensor, offset)
    require(before == row.before, "payload", f"{where}: base does not have the digest before")
    if row.encoding == SPARSE and row.touched != 0:
        positions = positions_of(row, parts)
        touched = digest.touched_of(base, positions, row.width, tensor, offset)
        require(touched == row.touched, "payload", f"{where}: touched is not the base's")
    target = target_of(row, parts, base)
    after = digest.digest_of(target, tensor, offset)
    require(after == row.after, "payload", f"{where}: result does not have the digest after")
    return target


def check_update(
    plan: Plan, layout: Layout, manifest: Manifest, objects: list[bytes]
) -> list[Payload]:
    """All that can be checked without the base."""
    require(manifest.plan == plan.digest, "manifest", "plan digest is not the plan's")
    size = plan.model_size
    require(manifest.model_bytes == size, "manifest", f"model_bytes, the plan has {size}")
    same_layout = manifest.target_layout == layout.digest
    require(same_layout, "manifest", "target_layout is not the layout's digest")
    check_layout(layout, plan)
    payloads = _open_payloads(plan, manifest, objects)
    _check_sums(manifest, payloads)
    return payloads


def apply_update(
    plan: Plan, layout: Layout, manifest: Manifest, objects: list[bytes], base: Tensors
) -> Tensors:
    """The target's tensors, from the base's; refuses at the first thing that disagrees."""
    payloads = check_update(plan, layout, manifest, objects)
    is_base = model_digest(plan, base) == manifest.base_digest
    require(is_base, "base", "digest is not the manifest's base_digest", VERSION_MISMATCH)
    buffers = {name: bytearray(data) for name, data in base.items()}
    for payload in payloads:
        for row, parts in zip(payload.rows, payload.parts):
            place = row.place
            span = slice(place.offset, place.offset + place.size)
            buffer = buffers[place.tensor.name]
            buffer[span] = _apply_row(row, parts, bytes(buffer[span]))
    target = {name: bytes(buffer) for name, buffer in buffers.items()}
    is_target = model_digest(plan, target) == manifest.target_digest
    require(is_target, "manifest", "result does not have target_digest")
    return target
