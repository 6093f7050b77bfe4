#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The guided tour of live engines: a trainer that publishes the recorded steps of tests/data/trace,
and three engines that read their weights in a loop as forward steps would.

Engine `sampler` follows every version. Engine `crashed` follows too, until its receiver is killed
in the middle, and is rebuilt from the base checkpoint. Engine `evaluation` lags: it is told to take
every fourth version and gets the steps between as one. Every forward step of every engine holds
what it reads against its version's digest. The last line is `verified` only if at the end the live
bytes of all three equal the trainer's files; this script compares them itself.

  tools/demo_live.py [--format bf16|nvfp4|fp8]
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from demo import TRACE, Failure, find_segue, print_table, segue, show_time
from live_segment import Segment, read_checkpoint

STEPS = 8
EVALUATE_EVERY = 4
CRASH_AFTER = 3
STEP_SECONDS = 0.3
SECONDS_MAX = 60


class Receiver:
    def __init__(self, role, store, base, *arguments):
        self.name = f"demo-{role}-{os.getpid()}"
        self.segment = Segment(self.name)
        self.command = [find_segue(), "serve", "--name", self.name, "--store", store,
                        "--checkpoint", base, "--json", *map(str, arguments)]
        self.process = None
        self.pauses = []

    def start(self, *more):
        self.process = subprocess.Popen([*self.command, *more], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"{self.name} did not start")
        self.url = json.loads(line)["url"]

    def post(self, path, **fields):
        request = urllib.request.Request(self.url + path, data=json.dumps(fields).encode())
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
            return json.loads(answer.read())["participants"][0]

    def wait_for(self, version):
        """Also keeps the pause of the update that led there."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            receipt = self.post("/get_gpu_delta_info")
            if receipt["version"] >= version:
                break
            if time.monotonic() > deadline:
                raise Failure(f"{self.name} does not reach version {version}")
            time.sleep(0.005)
        self.pauses.append(receipt["scheduler_timing"]["blocked_s"])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.close()

    def close(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process.stdout.close()
            self.process = None


class Engine:
    def __init__(self, receiver):
        self.process = subprocess.Popen(
            [find_segue(), "engine", "--name", receiver.name, "--until", str(STEPS), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def report(self):
        out, error = self.process.communicate(timeout=SECONDS_MAX)
        if self.process.returncode != 0:
            raise Failure(error.strip())
        return json.loads(out)


def train(trace, store, receivers):
    """Publishes every step; the engines take them as their roles say."""
    sampler, crashed, evaluation = receivers
    for version in range(1, STEPS + 1):
        segue("publish", "--store", store, "--base", trace / f"v{version - 1:04d}",
              "--target", trace / f"v{version:04d}")
        sampler.wait_for(version)
        if version == CRASH_AFTER:
            crashed.kill()
            print(f"version {version}: the receiver of `crashed` is killed; its engine goes on")
        elif version == CRASH_AFTER + 2:
            crashed.start("--rebuild")
            print(f"version {version}: `crashed` is rebuilt from the base checkpoint, in one step")
        if crashed.process is not None:
            crashed.wait_for(version)
        if version % EVALUATE_EVERY == 0:
            evaluation.post("/update_weights_from_gpu_delta", target_version=version)
            evaluation.wait_for(version)
        time.sleep(STEP_SECONDS)


def show(roles, receivers, reports):
    rows = [["engine", "versions seen", "steps", "step", "pause median", "pause max",
             "longest wait seen"]]
    for role, receiver, report in zip(roles, receivers, reports):
        pauses = sorted(receiver.pauses)
        rows.append([role, " ".join(str(entry["version"]) for entry in report["versions"]),
                     str(report["steps"]), show_time(report["step_s_median"]),
                     show_time(pauses[len(pauses) // 2]), show_time(pauses[-1]),
                     show_time(report["wait_s_max"])])
    print()
    print_table(rows)


def tour(trace, folder):
    store = folder / "store"
    store.mkdir()
    base = trace / "v0000"
    roles = ("sampler", "crashed", "evaluation")
    receivers = [Receiver(role, store, base, *(() if role == "evaluation" else ("--follow", 10)))
                 for role in roles]
    engines = []
    try:
        for receiver in receivers:
            receiver.start()
            engines.append(Engine(receiver))
        train(trace, store, receivers)
        reports = [engine.report() for engine in engines]
        show(roles, receivers, reports)
        expected = read_checkpoint(trace / f"v{STEPS:04d}")
        wrong = [role for role, receiver in zip(roles, receivers)
                 if receiver.segment.tensors() != expected]
        if wrong:
            raise Failure(f"live weights differ from the trainer's: {', '.join(wrong)}")
    finally:
        for engine in engines:
            engine.process.kill()
        for receiver in receivers:
            receiver.close()
            receiver.segment.remove()


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--format", choices=("bf16", "nvfp4", "fp8"), default="bf16")
    options = parser.parse_args(arguments)
    print("Live engines: one trainer, three engines that never stop reading\n")
    try:
        with tempfile.TemporaryDirectory(prefix="segue-live-") as folder:
            tour(TRACE / options.format, pathlib.Path(folder))
    except Failure as failure:
        print(f"demo: {failure}", file=sys.stderr)
        return 1
    print("\nverified")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
