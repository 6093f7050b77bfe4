#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python adds: the work of bound_model_benchmark (1 GiB of BF16, every 1000th element changes)
through the package, beside the C++ program, and a step at an open gate.

  .venv/bin/python bench/python_overhead.py [BUILD]   BUILD: where bound_model_benchmark is (build)

C++ and Python take turns, as other load on the machine comes and goes; the least and the median of
all repeats are printed. The part of the time that is spent in Python itself is measured apart.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import segue
from segue.tensors import describe_all

TENSORS = 32
ELEMENTS = 16 << 20
EVERY = 1000
REPEATS = 15
ROUNDS = 3
STEPS = 200_000


class Loop:
    """A trainer, its publisher and a receiver, as in the C++ program."""

    def __init__(self, directory):
        import ml_dtypes
        self.words = {f"layer.{i}": np.zeros(ELEMENTS, np.uint16) for i in range(TENSORS)}
        self.trained = {name: a.view(ml_dtypes.bfloat16) for name, a in self.words.items()}
        self.live = {name: a.copy() for name, a in self.trained.items()}
        self.publisher = segue.Publisher(directory, base=self.trained, retain=4)
        self.receiver = segue.Receiver(directory)
        for name, array in self.live.items():
            self.receiver.bind(name, array)
        self.receiver.open()
        self.step = 0

    def train(self):
        """One step."""
        self.step += 1
        for array in self.words.values():
            array[self.step % EVERY::EVERY] ^= 1

    def repeat(self):
        """Milliseconds of a publish and of an update."""
        self.train()
        started = time.perf_counter()
        self.publisher.publish(self.trained)
        published = time.perf_counter()
        self.receiver.update()
        return (published - started) * 1e3, (time.perf_counter() - published) * 1e3

    def in_python(self):
        """Milliseconds of a publish's and an update's work in Python alone."""
        started = time.perf_counter()
        for _ in range(100):
            [tensor.source() for tensor in describe_all(self.trained)]
        described = time.perf_counter()
        for _ in range(100):
            self.receiver._bound.generation()
        return (described - started) * 10, (time.perf_counter() - described) * 10


def run_cpp(build):
    """{"BM_Publish": [milliseconds], "BM_Update": [...]}."""
    done = subprocess.run([pathlib.Path(build) / "bound_model_benchmark",
                           "--benchmark_format=json"], stdout=subprocess.PIPE, check=True)
    times = {}
    for entry in json.loads(done.stdout)["benchmarks"]:
        if entry["run_type"] == "iteration":
            times.setdefault(entry["run_name"].split("/")[0], []).append(entry["real_time"])
    return times


def nanoseconds(enter):
    """Of one `with enter(): pass`, without the loop: the least of several runs."""
    least = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(STEPS):
            with enter():
                pass
        middle = time.perf_counter()
        for _ in range(STEPS):
            pass
        ended = time.perf_counter()
        least = min(least, (middle - started) - (ended - middle))
    return least / STEPS * 1e9


def measure_steps(directory, loop):
    """Nanoseconds of a step of attached weights and of bound ones."""
    checkpoint = pathlib.Path(directory) / "checkpoint"
    checkpoint.mkdir()
    header = b'{"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}   '
    (checkpoint / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + bytes(8))
    name = f"python-overhead-{os.getpid()}"
    os.mkdir(directory + "/store")
    with segue.Receiver(directory + "/store", name=name, checkpoint=checkpoint) as receiver:
        receiver.open()
        attached = nanoseconds(segue.attach(name).step)
    segue.remove_segment(name)
    return attached, nanoseconds(loop.receiver.step)


def main(build):
    """Prints the table."""
    times = {"publish": ([], []), "update": ([], [])}
    with tempfile.TemporaryDirectory() as directory:
        loop = Loop(directory + "/python")
        loop.repeat()
        for _ in range(ROUNDS):
            cpp = run_cpp(build)
            times["publish"][0].extend(cpp["BM_Publish"])
            times["update"][0].extend(cpp["BM_Update"])
            for _ in range(REPEATS):
                publish, update = loop.repeat()
                times["publish"][1].append(publish)
                times["update"][1].append(update)
        inside = dict(zip(times, loop.in_python()))
        assert all(a.tobytes() == loop.trained[name].tobytes() for name, a in loop.live.items())
        attached, local = measure_steps(directory, loop)
    print("| 1 GiB BF16, ms | C++ least | Python least | C++ median | Python median | in Python |")
    print("|---|---|---|---|---|---|")
    for what, (cpp, python) in times.items():
        print(f"| {what} | {min(cpp):.1f} | {min(python):.1f} | {statistics.median(cpp):.1f} "
              f"| {statistics.median(python):.1f} | {inside[what]:.2f} |")
    print(f"\nstep of attached weights {attached:.0f} ns, of bound weights {local:.0f} ns")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["build"]))
