#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What staging costs an engine that has a core to itself: the engine reads its weights in a loop on
one core, `segue serve` on another prepares a version and gives it up again, over and over. Windows
with and without staging take turns; medians of the engine's steps in each are printed.

  .venv/bin/python bench/staging_cost.py [PRESET [SIZE]]     (bf16-1 512MiB; two cores)
"""

import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy as np

import segue

SEGUE = pathlib.Path(os.environ.get("SEGUE_BUILD_DIR", "build")) / "segue"
WINDOWS = 12
WINDOW_SECONDS = 2.0


def run(*arguments):
    subprocess.run([SEGUE, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def engine(name, core, channel):
    """Reads all weights in each step, until told to end; sends (begin, seconds) of every step."""
    os.sched_setaffinity(0, {core})
    weights = segue.attach(name)
    words = [np.frombuffer(weights[tensor], np.uint8) for tensor in weights]
    words = [array[:array.size // 8 * 8].view(np.uint64) for array in words]
    steps = []
    while not channel.poll():
        begin = time.monotonic()
        with weights.step():
            for array in words:
                np.bitwise_xor.reduce(array)
        steps.append((begin, time.monotonic() - begin))
    channel.send(steps)


class Serve:
    """The receiver, on a core of its own."""

    def __init__(self, name, store, checkpoint, core):
        self.process = subprocess.Popen(
            [SEGUE, "serve", "--name", name, "--store", store, "--checkpoint", checkpoint,
             "--version", "0", "--json"], stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.url = json.loads(self.process.stdout.readline())["url"]
        self.count = 0

    def post(self, path, **fields):
        request = urllib.request.Request(self.url + path, data=json.dumps(fields).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["participants"][0]

    def stage_until(self, end):
        """Prepares and gives up; returns how often, and the seconds of staging."""
        staged, seconds = 0, 0.0
        while time.monotonic() < end:
            self.count += 1
            session = f"staging-{self.count}"
            begin = time.monotonic()
            self.post("/prepare_gpu_delta", session_id=session, target_version=1)
            while self.post("/get_gpu_delta_status", session_id=session)["state"] == "PREPARING":
                time.sleep(0.002)
            seconds += time.monotonic() - begin
            staged += 1
            self.post("/abort_gpu_delta", session_id=session)
            self.post("/clear_gpu_delta_state")
        return staged, seconds


def measure(serve, channel):
    windows = []
    for number in range(WINDOWS):
        begin = time.monotonic()
        end = begin + WINDOW_SECONDS
        staged, seconds = serve.stage_until(end) if number % 2 else (0, 0.0)
        time.sleep(max(0.0, end - time.monotonic()))
        windows.append((begin, time.monotonic(), staged, seconds))
    channel.send("end")
    return windows, channel.recv()


def report(windows, steps):
    medians = ([], [])
    for begin, end, staged, _ in windows:
        inside = [seconds for at, seconds in steps if begin <= at and at + seconds <= end]
        medians[staged > 0].append(statistics.median(inside))
    alone, beside = (statistics.median(part) for part in medians)
    times = [seconds / staged for _, _, staged, seconds in windows if staged]
    print(f"step alone {alone * 1e3:.1f} ms, beside staging {beside * 1e3:.1f} ms: "
          f"{(beside / alone - 1) * 100:+.1f} %")
    print(f"{sum(window[2] for window in windows)} versions staged, "
          f"{statistics.median(times) * 1e3:.0f} ms each")


def main():
    preset, size = (sys.argv[1:] + ["bf16-1", "512MiB"][len(sys.argv) - 1:])[:2]
    name = f"staging-cost-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        run("generate", "--output", f"{folder}/run", "--preset", preset, "--size", size)
        versions = sorted(pathlib.Path(folder, "run").iterdir())
        run("publish", "--store", f"dir:{folder}/store", "--base", versions[0],
            "--target", versions[1])
        serve = Serve(name, f"dir:{folder}/store", versions[0], 1)
        here, there = multiprocessing.Pipe()
        reader = multiprocessing.get_context("spawn").Process(target=engine, args=(name, 0, there),
                                                              daemon=True)
        reader.start()
        time.sleep(3)
        windows, steps = measure(serve, here)
        report(windows, steps)
        serve.process.terminate()
        serve.process.wait()
        segue.remove_segment(name)


if __name__ == "__main__":
    main()
