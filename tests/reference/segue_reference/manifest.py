# SPDX-License-Identifier: Apache-2.0
"""The manifest of section 7, and the anchor record of section 8."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from . import limits
from .digest import Digest, from_text
from .errors import UNSUPPORTED, limit, require
from .strict_json import integer, parse_object, string

LINEAGE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
SHA256 = re.compile(r"[0-9a-f]{64}")
MODEL_DIGEST = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class PayloadEntry:
    owner: int
    object: str
    size: int
    sha256: str
    rows: int


@dataclass(frozen=True)
class Manifest:
    lineage: str
    base_version: int
    target_version: int
    plan: str
    base_layout: str
    target_layout: str
    base_digest: Digest
    target_digest: Digest
    profile: str
    model_bytes: int
    changed_chunks: int
    changed_elements: int
    payloads: tuple[PayloadEntry, ...]
    anchor: str | None = None  # Of an anchor record.


def _matching(fields: dict[str, Any], key: str, pattern: re.Pattern) -> str:
    value = string(fields, key, "manifest")
    require(pattern.fullmatch(value) is not None, "manifest", f"{key} is malformed")
    return value


def payload_name(lineage: str, version: int, owner: int, count: int, sha256: str) -> str:
    """The name that a writer gives a payload (section 8)."""
    return f"{lineage}/payloads/{version:010}/{owner:05}-of-{count:05}-{sha256[:16]}"


def _check_object_name(name: str, lineage: str, place: int) -> None:
    """A name is confined below the lineage: plain components only, of which the first is it."""
    components = name.split("/")
    plain = all(c not in ("", ".", "..") for c in components)
    plain = plain and not any(c == "\\" or unicodedata.category(c) == "Cc" for c in name)
    confined = plain and len(components) > 1 and components[0] == lineage
    require(confined, "manifest", f"payload {place}: object {name!r} is not below {lineage}/")


def _read_entries(fields: dict[str, Any], lineage: str, none: bool) -> list[PayloadEntry]:
    items = fields.get("payloads")
    right = isinstance(items, list) and (len(items) == 0) == none
    require(right, "manifest", f"payloads is not an array of {'none' if none else 'at least one'}")
    limit(len(items), limits.OWNER_COUNT, "manifest", "count of owners")
    entries = []
    for place, item in enumerate(items):
        require(isinstance(item, dict), "manifest", f"payload {place} is not an object")
        owner = integer(item, "owner", "manifest")
        require(owner == place, "manifest", f"payload {place} has owner {owner}")
        sha256 = _matching(item, "sha256", SHA256)
        name = string(item, "object", "manifest")
        _check_object_name(name, lineage, place)
        size, rows = (integer(item, key, "manifest") for key in ("size", "rows"))
        entries.append(PayloadEntry(owner, name, size, sha256, rows))
    return entries


def _read_versions(fields: dict[str, Any], is_anchor: bool) -> tuple[int, int]:
    base = integer(fields, "base_version", "manifest")
    target = integer(fields, "target_version", "manifest")
    in_order = base < target or (is_anchor and base == target)
    require(in_order, "manifest", f"base_version {base} is not below {target}")
    require(target <= limits.VERSION_MAX, "manifest", f"target_version {target} is too large")
    return base, target


def parse_anchor(data: bytes) -> Manifest:
    """Reads an anchor record: a manifest with a name, whose base may be its target."""
    record = _parse(data, "segue-anchor")
    if record.payloads:
        return record
    same = (record.base_digest, record.base_layout) == (record.target_digest, record.target_layout)
    unchanged = record.changed_chunks == 0 and record.changed_elements == 0
    require(same and unchanged, "manifest", "one version, and yet base and target differ")
    return record


def parse_step(data: bytes) -> Manifest:
    """Reads either: what leads from one version to another."""
    is_anchor = parse_object(data, "manifest").get("format") == "segue-anchor"
    return parse_anchor(data) if is_anchor else parse_manifest(data)


def parse_manifest(data: bytes) -> Manifest:
    """Reads a manifest and applies the rules that need nothing but its own text."""
    return _parse(data, "segue-manifest")


def _parse(data: bytes, expected_format: str) -> Manifest:
    is_anchor = expected_format == "segue-anchor"
    limit(len(data), limits.MANIFEST_SIZE, "manifest", "object size")
    fields = parse_object(data, "manifest")
    format_name = string(fields, "format", "manifest")
    require(format_name == expected_format, "manifest", f"format is {format_name!r}")
    version = integer(fields, "format_version", "manifest")
    require(version == 1, "manifest", f"format_version {version}", UNSUPPORTED)
    lineage = _matching(fields, "lineage", LINEAGE)
    anchor = _matching(fields, "anchor", LINEAGE) if is_anchor else None
    base_version, target_version = _read_versions(fields, is_anchor)
    sums = {
        key: integer(fields, key, "manifest")
        for key in ("model_bytes", "changed_chunks", "changed_elements")
    }
    entries = _read_entries(fields, lineage, none=base_version == target_version)
    digest_keys = "plan", "base_layout", "target_layout"
    digests = {key: _matching(fields, key, SHA256) for key in digest_keys}
    return Manifest(
        lineage=lineage,
        base_version=base_version,
        target_version=target_version,
        base_digest=from_text(_matching(fields, "base_digest", MODEL_DIGEST)),
        target_digest=from_text(_matching(fields, "target_digest", MODEL_DIGEST)),
        profile=string(fields, "profile", "manifest"),
        payloads=tuple(entries),
        anchor=anchor,
        **sums,
        **digests,
    )
