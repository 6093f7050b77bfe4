#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The guided tour: one trainer, a store and two engines, on the recorded optimizer steps of
tests/data/trace (real training, kept with the project; docs/trace.md).

Per step the trainer publishes what changed and both engines take it into their checkpoints in
place. Engine A proves its whole base first; engine B trusts its state and proves what changes. A
third engine then comes late and takes all steps as one. The last line is `verified` only if every
byte of every engine equals the trainer's files; this script compares them itself.

  tools/demo.py [--format bf16|nvfp4|fp8|all] [--profile NAME] [--keep DIR]
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRACE = ROOT / "tests" / "data" / "trace"
FORMATS = ("bf16", "nvfp4", "fp8")

# Column -> the report that has it, and its key there.
PUBLISH_COLUMNS = {"diff+encode": "encode_s", "commit": "commit_s"}
APPLY_COLUMNS = {"locate": "locate_s", "fetch": "fetch_s", "stage": "stage_s",
                 "preflight": "preflight_s", "journal": "journal_s", "apply=pause": "apply_s",
                 "sync": "sync_s"}


class Failure(Exception):
    """A sentence for the user."""


def find_segue():
    named = os.environ.get("SEGUE_BINARY")
    folder = os.environ.get("SEGUE_BUILD_DIR", ROOT / "build")
    binary = pathlib.Path(named) if named else pathlib.Path(folder) / "segue"
    if not binary.is_file():
        raise Failure(f"there is no {binary}: run ./dev build segue, or set SEGUE_BINARY")
    return binary


def segue(verb, *arguments):
    done = subprocess.run([find_segue(), verb, *map(str, arguments), "--json"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Failure(done.stderr.strip() or f"segue {verb} ended with {done.returncode}")
    return json.loads(done.stdout)


def files_of(checkpoint):
    """{name: bytes} of the checkpoint's own files; the engine's state folder is not one."""
    return {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.is_file()}


def differences(engine, trainer):
    """Names of files that are not byte for byte the same."""
    found, expected = files_of(engine), files_of(trainer)
    return sorted(name for name in found.keys() | expected.keys()
                  if found.get(name) != expected.get(name))


def show_size(size):
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def show_time(seconds):
    return f"{seconds * 1e3:.2f} ms"


def print_table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths)]
        print("  " + "  ".join(cells).rstrip())


class Tour:
    """One format of the trace, from its first version to its last."""

    def __init__(self, name, folder, profile):
        self.name = name
        self.versions = sorted(path for path in (TRACE / name).iterdir() if path.is_dir())
        self.store = folder / "store"
        self.profile = profile
        self.engines = {engine: folder / f"engine-{engine}" for engine in ("A", "B", "late")}
        for engine in self.engines.values():
            shutil.copytree(self.versions[0], engine)

    def publish(self, number):
        return segue("publish", "--store", self.store, "--base", self.versions[number - 1],
                     "--target", self.versions[number], "--profile", self.profile)

    def apply(self, engine, *more):
        return segue("apply", "--store", self.store, "--checkpoint", self.engines[engine], *more)

    def run(self):
        rows, times = [], []
        for number in range(1, len(self.versions)):
            published = self.publish(number)
            applied = [self.apply("A"), self.apply("B", "--trust-state")]
            verified = segue("verify", "--checkpoint", self.engines["B"], "--store", self.store,
                             "--version", number)
            rows.append(self.row(number, published, applied))
            times.append(self.times(published, applied, verified))
        self.show(rows, times, published["model_bytes"])
        self.show_late()
        return all([self.check(engine) for engine in self.engines])

    def row(self, number, published, applied):
        elements = published["changed_elements"]
        return [f"{number - 1} > {number}", f"{elements:,}", show_size(published["payload_bytes"]),
                f"{100 * published['payload_bytes'] / published['model_bytes']:.2f} %",
                *(show_time(report["apply_s"]) for report in applied)]

    def times(self, published, applied, verified):
        """Column -> seconds of one step; of the two engines the slower one."""
        found = {column: published[key] for column, key in PUBLISH_COLUMNS.items()}
        for column, key in APPLY_COLUMNS.items():
            found[column] = max(report[key] for report in applied)
        found["verify"] = verified["seconds"]
        return found

    def show(self, rows, times, model_bytes):
        print(f"\n{self.name}: {len(rows)} recorded steps of {show_size(model_bytes)}, "
              f"one trainer, two engines, profile {self.profile}\n")
        print_table([["version", "changed", "payload", "of model", "pause A", "pause B"], *rows])
        print("\n  stages of a step (of the slower engine):\n")
        table = [["stage", "median", "longest"]]
        for column in times[0]:
            values = [step[column] for step in times]
            table.append([column, show_time(statistics.median(values)), show_time(max(values))])
        print_table(table)

    def show_late(self):
        report = self.apply("late")
        print(f"\n  a late engine: version {report['base_version']} to "
              f"{report['target_version']} in one step, {show_size(report['payload_bytes'])} "
              f"fetched, {show_size(report['staged_bytes'])} staged, "
              f"pause {show_time(report['apply_s'])}")

    def check(self, engine):
        differing = differences(self.engines[engine], self.versions[-1])
        if differing:
            print(f"  engine {engine}: {', '.join(differing)} differ from the trainer's")
            return False
        size = sum(map(len, files_of(self.engines[engine]).values()))
        print(f"  engine {engine}: all {size:,} bytes equal the trainer's files")
        return True


def run_tours(names, folder, profile):
    verified = True
    for name in names:
        tour_folder = folder / name
        tour_folder.mkdir(parents=True)
        verified = Tour(name, tour_folder, profile).run() and verified
    return verified


def main(arguments):
    parser = argparse.ArgumentParser(description="Publish and apply recorded training steps.")
    parser.add_argument("--format", choices=(*FORMATS, "all"), default="all")
    parser.add_argument("--profile", default="sparse-zstd")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR",
                        help="leave the store and the engines here, for a look with segue inspect")
    options = parser.parse_args(arguments)
    names = FORMATS if options.format == "all" else (options.format,)
    try:
        find_segue()
        if options.keep:
            verified = run_tours(names, options.keep, options.profile)
        else:
            with tempfile.TemporaryDirectory(prefix="segue-demo-") as folder:
                verified = run_tours(names, pathlib.Path(folder), options.profile)
    except (Failure, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        verified = False
    print("\nverified" if verified else "\nNOT verified")
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
