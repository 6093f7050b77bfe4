#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A reinforcement-learning loop with live weights: one command, two processes, two runs.

    python examples/rl/run.py [--steps 60] [--output DIR]

A trainer makes GRPO steps, a sampler generates with the weights that it has; once with Segue and
once with a broadcast of all weights. Ends with a table, `report.png`, and `verified` when the
sampler's last weights equal the trainer's bit for bit.
"""

import argparse
import contextlib
import json
import multiprocessing
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import types

import torch
from safetensors.torch import load_file, save_file

import policy
import report
import sampler
import segue
import trainer

SEGMENT = "segue-example-rl"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60, help="of the trainer, in each run")
    parser.add_argument("--pretrain", type=int, default=250, help="supervised steps before")
    parser.add_argument("--hidden", type=int, default=192, help="size of the model, n x 32")
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("rl-report"))
    return parser.parse_args()


def make_base(arguments, folder):
    """The model that both runs start from: the trainer's float32, and a BF16 checkpoint of it."""
    torch.set_num_threads(2)
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
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        if not process.stdout.readline():
            raise RuntimeError("segue serve did not start")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=60)


def collect(processes):
    """What the processes tell, {name: [record]}, until all have ended; one that fails ends all."""
    told = {name: [] for name in processes}
    alive = set(processes)
    while alive:
        for name in list(alive):
            process, records = processes[name]
            ended = not process.is_alive()
            with contextlib.suppress(queue.Empty):
                while True:
                    told[name].append(records.get(timeout=0.1))
            if ended and process.exitcode != 0:
                for other, _ in processes.values():
                    other.terminate()
                raise RuntimeError(f"the {name} ended with {process.exitcode}")
            if ended:
                alive.remove(name)
    return told


def run(mode, arguments, folder):
    """One run; gives what both processes told, and whether their last weights are equal."""
    context = multiprocessing.get_context("spawn")
    own = folder / mode
    own.mkdir()
    setup = types.SimpleNamespace(
        mode=mode, steps=arguments.steps, hidden=arguments.hidden, seed=arguments.seed,
        learning_rate=arguments.learning_rate, base=folder / "base",
        trainer_base=folder / "trainer.safetensors", store=own / "store", segment=SEGMENT,
        rendezvous=own / "rendezvous", final=own / "trainer.safetensors",
        sampled=own / "sampler.safetensors", offered=context.Value("q", 0),
        finished=context.Event())
    setup.store.mkdir()
    rollouts = context.Queue(maxsize=2)
    with receiver(setup) if mode == "segue" else contextlib.nullcontext():
        processes = {}
        for name, module in (("sampler", sampler), ("trainer", trainer)):
            records = context.Queue()
            process = context.Process(target=module.run, name=name, daemon=True,
                                      args=(setup, rollouts, records))
            process.start()
            processes[name] = (process, records)
        told = collect(processes)
    ours, theirs = load_file(setup.final), load_file(setup.sampled)
    told["equal"] = ours.keys() == theirs.keys() and all(
        torch.equal(ours[name].view(torch.int16), theirs[name].view(torch.int16)) for name in ours)
    return told


def main():
    arguments = parse()
    with contextlib.suppress(segue.NotFoundError):
        segue.remove_segment(SEGMENT)  # Of a run that was killed.
    shutil.rmtree(arguments.output, ignore_errors=True)
    arguments.output.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="segue-rl-") as name:
        folder = pathlib.Path(name)
        make_base(arguments, folder)
        runs = {mode: run(mode, arguments, folder) for mode in ("segue", "broadcast")}
    (arguments.output / "log.json").write_text(json.dumps(runs, indent=1))
    report.show(runs)
    report.draw(runs, arguments.output / "report.png")
    if not all(told["equal"] for told in runs.values()):
        sys.exit("the sampler's weights differ from the trainer's")
    print("verified")


if __name__ == "__main__":
    main()
