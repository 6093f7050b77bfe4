#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A reinforcement-learning loop with live weights: one command, two processes, two runs.

    ./dev example rl [--steps 40] [--output DIR]

A trainer makes GRPO steps, a sampler generates with the weights that it has; once with Segue and
once with a broadcast of all weights. Ends with a table, `report.png`, and `verified` when the
sampler's last weights equal the trainer's bit for bit. README.md beside this explains it.
"""

import argparse
import contextlib
import json
import multiprocessing
import pathlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import types

import torch
from safetensors.torch import load_file, save_file

import policy
import report
import sampler
import trainer

OUTPUT = pathlib.Path(__file__).resolve().parent / "output"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="of the trainer, in each run")
    parser.add_argument("--pretrain", type=int, default=250, help="supervised steps before")
    parser.add_argument("--hidden", type=int, default=192, help="size of the model, n x 32")
    parser.add_argument("--batches", type=int, default=16, help="of the sampler, in a step")
    parser.add_argument("--learning-rate", type=float, default=3e-5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT,
                        help="folder for report.png and log.json")
    return parser.parse_args()


def make_base(arguments, folder):
    """The model that both runs start from: the trainer's float32, and a BF16 checkpoint of it."""
    print(f"base model: {arguments.pretrain} supervised steps", flush=True)
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    model = policy.build(arguments.hidden)
    policy.pretrain(model, arguments.pretrain, arguments.seed)
    save_file({name: parameter.detach() for name, parameter in model.named_parameters()},
              folder / "trainer.safetensors")
    (folder / "base").mkdir()
    save_file(policy.served(model), folder / "base" / "model.safetensors")


@contextlib.contextmanager
def receiver(setup):
    """`segue serve` beside the sampler: holds the weights and takes each version as it comes."""
    command = [sys.executable, "-m", "segue", "serve", "--store", str(setup.store),
               "--lineage", "rl", "--checkpoint", str(setup.base), "--name", setup.segment,
               "--follow", "10", "--json", "--remove"]
    with open(setup.updates, "w", encoding="utf-8") as updates:
        process = subprocess.Popen(command, stdout=updates)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def collect(processes, records):
    """What the processes tell, {name: [record]}, until all have ended; one that fails ends all."""
    told = {name: [] for name in processes}
    while True:
        ended = [process for process in processes.values() if not process.is_alive()]
        if any(process.exitcode != 0 for process in ended):
            for process in processes.values():
                process.terminate()
            raise RuntimeError("; ".join(f"the {process.name} ended with {process.exitcode}"
                                         for process in ended))
        try:
            name, record = records.get(timeout=0.2)
            told[name].append(record)
        except queue.Empty:
            if len(ended) == len(processes):
                return told


def run(mode, arguments, folder):
    """One run; gives what both processes told, and whether their last weights are equal."""
    context = multiprocessing.get_context("spawn")
    own = folder / mode
    own.mkdir()
    setup = types.SimpleNamespace(
        **vars(arguments), mode=mode, base=folder / "base",
        trainer_base=folder / "trainer.safetensors", store=own / "store",
        segment=f"example-rl-{os.getpid()}", updates=own / "updates",
        rendezvous=own / "rendezvous", offered=context.Value("q", 0),
        final=own / "trainer.safetensors", sampled=own / "sampler.safetensors",
        finished=context.Event())
    setup.store.mkdir()
    setup.updates.touch()
    rollouts, records = context.Queue(maxsize=arguments.batches), context.Queue()
    with receiver(setup) if mode == "segue" else contextlib.nullcontext():
        processes = {}
        for name, module in (("sampler", sampler), ("trainer", trainer)):
            processes[name] = context.Process(target=module.run, name=name, daemon=True,
                                              args=(setup, rollouts, records))
            processes[name].start()
        told = collect(processes, records)
    updates = setup.updates.read_text().splitlines()[1:]  # The first one says where it began.
    told["receiver"] = [json.loads(line) for line in updates]
    told["steps"] = report.every_step(told)
    ours, theirs = load_file(setup.final), load_file(setup.sampled)
    told["equal"] = ours.keys() == theirs.keys() and all(
        torch.equal(ours[name].view(torch.int16), theirs[name].view(torch.int16)) for name in ours)
    return told


def main():
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that what it started ends, too.
    arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="segue-rl-") as name:
        folder = pathlib.Path(name)
        make_base(arguments, folder)
        runs = {mode: run(mode, arguments, folder) for mode in ("segue", "broadcast")}
    (arguments.output / "log.json").write_text(json.dumps(runs, indent=1))
    report.show(runs)
    report.draw(runs, arguments.output / "report.png")
    if not all(told["equal"] for told in runs.values()):
        sys.exit("the sampler's weights differ from the trainer's")
    print(f"{arguments.output}: report.png, log.json\nverified")


if __name__ == "__main__":
    main()
