#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a version of a distributed trainer costs each rank, in time and memory: ranks of one machine
over gloo, a model of BF16 tensors that is held whole, in rows (what FSDP2 does), or in columns.

  .venv/bin/python bench/distributed_publish.py [RANKS [MEBIBYTES]]    2 ranks, 256 MiB of each

Memory is what a rank's process had at most beyond what it held before (its own tensors among that),
apart for the opening and for a version; times are the median of the versions, the slowest rank's.
"""

import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
from torch import distributed as dist

import segue.distributed

TENSORS = 16
EVERY = 1000  # Of the elements one changes.
VERSIONS = 5
WAYS = ("whole", "rows", "columns")


def memory(field):
    """VmRSS or VmHWM of this process in MiB."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(field + ":")[1].split()[0]) / 1024


def begin_peak():
    """Forgets the largest size so far; the size now."""
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return memory("VmRSS")


class Rank:
    """What one rank holds of the model: tensors of `rows` rows and 4096 columns."""

    def __init__(self, rank, ranks, way, mebibytes):
        elements = mebibytes * ranks * (1 << 20) // 2 // TENSORS
        shape = (elements // 4096, 4096)
        self.words, self.tensors = [], {}
        for number in range(TENSORS):
            if way == "whole":
                if number % ranks != rank:
                    continue
                size, offset = shape, (0, 0)
            elif way == "rows":
                size, offset = (shape[0] // ranks, 4096), (shape[0] // ranks * rank, 0)
            else:
                size, offset = (shape[0], 4096 // ranks), (0, 4096 // ranks * rank)
            words = torch.zeros(size, dtype=torch.int16)
            words += 1
            self.words.append(words)
            self.tensors[f"layer.{number:02}"] = segue.distributed.Partition(
                words.view(torch.bfloat16), shape, offset)

    def train(self, step):
        """Changes one element in EVERY."""
        for words in self.words:
            words.view(-1)[step::EVERY] ^= 1


def work(rank, ranks, port, way, mebibytes, store, answer):
    """One rank of one run."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", rank=rank, world_size=ranks,
                            store=dist.TCPStore("127.0.0.1", port, is_master=False))
    mine = Rank(rank, ranks, way, mebibytes)
    before = begin_peak()
    publisher = segue.distributed.Publisher(store, mine.tensors, threads=1)
    opening = memory("VmHWM") - before
    before = begin_peak() - publisher.baseline_bytes / (1 << 20)
    times = []
    for step in range(1, VERSIONS + 1):
        mine.train(step)
        dist.barrier()
        started = time.perf_counter()
        publisher.publish(step)
        times.append((time.perf_counter() - started) * 1e3)
    answer.send((opening, memory("VmHWM") - before, publisher.baseline_bytes / (1 << 20), times))
    answer.recv()


def run(ranks, way, mebibytes):
    """What each rank answered."""
    context = multiprocessing.get_context("spawn")
    kept = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as store:
        pipes = [context.Pipe() for _ in range(ranks)]
        processes = [context.Process(target=work, args=(rank, ranks, kept.port, way, mebibytes,
                                                        store, end))
                     for rank, (_, end) in enumerate(pipes)]
        for process in processes:
            process.start()
        answers = [pipe.recv() for pipe, _ in pipes]
        for pipe, _ in pipes:
            pipe.send(None)
        for process in processes:
            process.join()
    return answers


def main(ranks=2, mebibytes=256):
    """Prints the table."""
    print(f"{ranks} ranks, {mebibytes} MiB of BF16 on each in {TENSORS} tensors of the model\n")
    print("| held | version, ms | baseline, MiB | most memory at a version | at the opening |")
    print("|---|---|---|---|---|")
    for way in WAYS:
        answers = run(int(ranks), way, int(mebibytes))
        slowest = [max(times) for times in zip(*(times for _, _, _, times in answers))]
        print(f"| {way} | {statistics.median(slowest):.0f} (least {min(slowest):.0f}) "
              f"| {max(a[2] for a in answers):.0f} | {max(a[1] for a in answers):.0f} "
              f"| {max(a[0] for a in answers):.0f} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
