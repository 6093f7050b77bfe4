#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Command line of the reference decoder.

    apply_delta.py --plan FILE --manifest FILE --payload FILE [--payload FILE ...]
                   --base DIR --output DIR [--layout FILE]
    apply_delta.py inspect --plan FILE --payload FILE
    apply_delta.py digest DIR --plan FILE

The first form applies an update; payloads are given in the order of the owners. Without `--layout`
the target must lie in files as the base does. A refusal goes to standard error as one JSON object
{"code", "object", "reason"}, with exit status 1 and nothing written.
"""

import argparse
import json
import sys
from pathlib import Path

from segue_reference import digest
from segue_reference.apply import apply_update, model_digest
from segue_reference.errors import INVALID_ARGUMENT, NOT_FOUND, VERSION_MISMATCH, Refusal, require
from segue_reference.layout import build_files, layout_of, parse_layout
from segue_reference.manifest import parse_step
from segue_reference.payload import parse_payload
from segue_reference.plan import Plan, parse_plan
from segue_reference.safetensors_reader import Checkpoint, check_against_plan, read_checkpoint
from segue_reference.table import ENCODING_NAMES, OUTER_NAMES, Row


def read_base(directory: Path, plan: Plan) -> Checkpoint:
    checkpoint = read_checkpoint(directory)
    check_against_plan(checkpoint.entries, plan, "base", VERSION_MISMATCH)
    return checkpoint


def apply_files(
    plan_file: Path, layout_file: Path | None, manifest_file: Path, payloads: list[Path], base: Path
) -> dict[str, bytes]:
    """The files of the target checkpoint."""
    plan = parse_plan(plan_file.read_bytes())
    given_layout = parse_layout(layout_file.read_bytes()) if layout_file else None
    manifest = parse_step(manifest_file.read_bytes())
    checkpoint = read_base(base, plan)
    layout = given_layout or layout_of(checkpoint)
    objects = [path.read_bytes() for path in payloads]
    target = apply_update(plan, layout, manifest, objects, checkpoint.tensors)
    return build_files(layout, target)


def describe_row(row: Row) -> dict:
    tensor = row.place.tensor
    return {
        "chunk": row.chunk,
        "tensor": tensor.name.decode("utf-8"),
        "offset": row.place.offset,
        "size": row.place.size,
        "encoding": ENCODING_NAMES[row.encoding],
        "low_bits": row.low_bits,
        "plane_mask": row.plane_mask,
        "constants": f"{row.constants:016x}",
        "change_count": row.change_count,
        "dense_size": row.dense_size,
        "inner_size": row.inner_size,
        "touched": f"{row.touched:016x}",
        "before": digest.text(row.before),
        "after": digest.text(row.after),
    }


def inspect(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="apply_delta.py inspect")
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--payload", type=Path, required=True)
    options = parser.parse_args(arguments)
    payload = parse_payload(options.payload.read_bytes(), parse_plan(options.plan.read_bytes()))
    table = payload.table
    described = {
        "trailer": payload.trailer,
        "groups": [{"rows": g.row_count, "stream_mask": g.stream_mask} for g in table.groups],
        "frames": [
            {"outer": OUTER_NAMES[f.outer], "size": f.outer_size, "inner_size": f.inner_size}
            for f in table.frames
        ],
        "rows": [describe_row(row) for row in table.rows],
    }
    print(json.dumps(described, indent=2))


def print_digest(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="apply_delta.py digest")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--plan", type=Path, required=True)
    options = parser.parse_args(arguments)
    plan = parse_plan(options.plan.read_bytes())
    tensors = read_base(options.directory, plan).tensors
    print(digest.text(model_digest(plan, tensors)))


def apply(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--plan", "--manifest", "--base", "--output"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--layout", type=Path)
    parser.add_argument("--payload", type=Path, required=True, action="append", nargs="+")
    options = parser.parse_args(arguments)
    payloads = [path for paths in options.payload for path in paths]
    taken = options.output.exists() and any(options.output.iterdir())
    require(not taken, "output", "directory is not empty", INVALID_ARGUMENT)
    files = apply_files(options.plan, options.layout, options.manifest, payloads, options.base)
    options.output.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (options.output / name).write_bytes(data)


def main(arguments: list[str]) -> int:
    commands = {"inspect": inspect, "digest": print_digest}
    command = commands.get(arguments[0]) if arguments else None
    try:
        if command:
            command(arguments[1:])
        else:
            apply(arguments)
    except Refusal as refusal:
        fields = {"code": refusal.code, "object": refusal.object_name, "reason": refusal.reason}
        print(json.dumps(fields), file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        fields = {"code": NOT_FOUND, "object": "file", "reason": str(error)}
        print(json.dumps(fields), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
