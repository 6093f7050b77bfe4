# SPDX-License-Identifier: Apache-2.0
"""Makes a real trace: trains a small transformer and saves consecutive optimizer steps.

Why: the C++ generator simulates what an RL step does to weights; this shows it, with a real
network, real gradients and real AdamW, so that both can be compared (docs/trace.md). The result is
DIR/FORMAT/vNNNN/ (v0000 is the base) and DIR/trace.json with the training record, the statistics
of every step and the hash of every file.

What must hold: the same arguments on the same machine and torch version give the same bytes.
trace.json therefore holds no time, path or host name.

    python tools/trace/make_trace.py --output DIR --steps 8 --preset small
"""

import argparse
import dataclasses
import hashlib
import json
import pathlib
import sys

import torch

import export
import trace_stats
from model import PRESETS, LanguageModel
from task import SortTask
from training import TrainingConfig, pretrain, reinforce_steps

LR = 3e-6
WARMUP_STEPS = 3
GROUP = 8
# preset: pretrain steps, rate, batch; RL prompts a step (each answered GROUP times).
TRAINING = {
    "tiny": (4, 2e-3, 8, 4),
    "small": (300, 2e-3, 64, 64),
    "medium": (200, 1e-3, 64, 16),
    "large": (300, 5e-4, 32, 8),
}
HASH_PIECE_SIZE = 1 << 20


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description="Trains a small transformer, saves its steps.")
    add = parser.add_argument
    add("--output", type=pathlib.Path, required=True, help="folder to write; must be new or empty")
    add("--steps", type=int, default=8, help="recorded optimizer steps (versions less one)")
    add("--preset", choices=sorted(PRESETS), default="small", help="model and training size")
    add("--lr", type=float, default=LR, help="learning rate of the recorded steps")
    add("--warmup", type=int, default=WARMUP_STEPS, help="steps of linear warm-up to that rate")
    add("--settle", type=int, default=0, help="RL steps to take before the base is recorded")
    add("--pretrain-steps", type=int, help="supervised steps before (default: the preset's)")
    add("--seed", type=int, default=1, help="seed of data, weights and samples")
    add("--formats", default=",".join(export.FORMATS), help="comma list; default: all three")
    add("--quantise-from", choices=("bf16", "master"), default="bf16",
        help="what fp8 and nvfp4 (scales and codes) are made from")
    add("--threads", type=int, default=1, help="torch threads; only 1 is sure to repeat exactly")
    arguments = parser.parse_args(argv)
    arguments.formats = arguments.formats.split(",")
    unknown = set(arguments.formats) - set(export.FORMATS)
    if unknown:
        parser.error(f"unknown format {sorted(unknown)[0]!r}; known: {', '.join(export.FORMATS)}")
    pretrain_steps = arguments.pretrain_steps
    if arguments.steps < 1 or (pretrain_steps is not None and pretrain_steps < 1):
        parser.error("--steps and --pretrain-steps must be at least 1")
    if arguments.settle < 0 or arguments.warmup < 0:
        parser.error("--settle and --warmup must be at least 0")
    if arguments.output.exists() and any(arguments.output.iterdir()):
        parser.error(f"{arguments.output} is not empty")
    return arguments


def training_config(arguments):
    steps, lr, batch, prompts = TRAINING[arguments.preset]
    if arguments.pretrain_steps is not None:
        steps = arguments.pretrain_steps
    return TrainingConfig(
        pretrain_steps=steps, pretrain_lr=lr, pretrain_batch=batch, lr=arguments.lr,
        warmup_steps=arguments.warmup, prompts=prompts, group=GROUP,
    )


def log(text):
    print(text, file=sys.stderr, flush=True)


def pretrained(arguments, config):
    """(model, task, random generator, record) after the supervised part."""
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(arguments.threads)
    generator = torch.Generator().manual_seed(arguments.seed)
    model_config = PRESETS[arguments.preset]
    model = LanguageModel(model_config, generator)
    task = SortTask(model_config.vocab, generator)
    sizes = [parameter.numel() for parameter in model.parameters()]
    log(f"{arguments.preset}: {sum(sizes):,} parameters in {len(sizes)} tensors")
    losses = pretrain(model, task, config)
    log(f"pretrained {config.pretrain_steps} steps: loss {losses[0]:.3f} to {losses[-1]:.3f}")
    shape = dataclasses.asdict(model_config)
    return model, task, generator, {
        "model": {**shape, "parameters": sum(sizes), "tensors": len(sizes)},
        "pretrain": {"loss_first": losses[0], "loss_last": losses[-1], "loss": losses[::20]},
    }


def train_and_export(arguments, config):
    """Runs the training, writes every version and returns its record."""
    model, task, generator, training = pretrained(arguments, config)
    records = []
    for step, (masters, record) in enumerate(reinforce_steps(model, task, config, generator)):
        version = step - arguments.settle
        if version >= 0:
            export.write_version(
                arguments.output, version, masters, arguments.formats, arguments.quantise_from
            )
        if record is not None:
            records.append({"version": version, **record})
            log(f"step {step}: reward {record['reward']:.3f}, lr {record['lr']:.2e}")
            if record["gradient_norm"] == 0:
                log("  no group's rewards differ, so there is no gradient: pretrain for longer")
        if version == arguments.steps:
            return {**training, "steps": records}


def file_records(output):
    """Size and SHA-256 of every file of the trace."""
    records = {}
    for path in sorted(output.rglob("*")):
        if not path.is_file():
            continue
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while piece := file.read(HASH_PIECE_SIZE):
                digest.update(piece)
        name = path.relative_to(output).as_posix()
        records[name] = {"size": path.stat().st_size, "sha256": digest.hexdigest()}
    return records


def make_trace(argv):
    arguments = parse_arguments(argv)
    config = training_config(arguments)
    arguments.output.mkdir(parents=True, exist_ok=True)
    training = train_and_export(arguments, config)
    settings = {key: value for key, value in vars(arguments).items() if key != "output"}
    trace = {
        "made_by": "tools/trace/make_trace.py",
        "torch": torch.__version__,
        "arguments": settings,
        "training": dataclasses.asdict(config),
        **training,
        "formats": {n: trace_stats.measure(arguments.output / n) for n in arguments.formats},
        "files": file_records(arguments.output),
    }
    (arguments.output / "trace.json").write_text(json.dumps(trace, indent=1) + "\n")
    for name, steps in trace["formats"].items():
        log(f"\n{name}\n{trace_stats.table(steps)}")


if __name__ == "__main__":
    make_trace(sys.argv[1:])
