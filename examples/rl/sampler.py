# SPDX-License-Identifier: Apache-2.0
"""The sampler process: generates answers all the time, with whatever weights are there."""

import queue
import time

import torch
from safetensors.torch import load_file, save_file

import policy
import sync
import task

GROUPS, GROUP_SIZE = 16, 8  # Prompts of a batch, answers to each.


def sample(transport, model, generator):
    """One batch, as the trainer takes it, and how many tokens were read again."""
    prompts, right = task.prompts(GROUPS, generator)
    prompts = prompts.repeat_interleave(GROUP_SIZE, 0)
    right = right.repeat_interleave(GROUP_SIZE, 0)
    decoder = policy.Decoder(model, prompts, generator)
    versions = []
    for _ in range(task.DIGITS):
        with transport.step() as version:
            decoder.next_token(version)
        versions.append(version)
    return {"groups": GROUPS, "prompts": prompts, "answers": decoder.answers,
            "log_probabilities": torch.cat(decoder.log_probabilities, 1),
            "reward": task.reward(decoder.answers, right), "version": versions[0],
            "last_version": versions[-1], "read_again": decoder.read_again}


def hand_over(rollouts, rollout):
    """The trainer never waits for old ones: they make room for new ones."""
    while True:
        try:
            rollouts.put_nowait(rollout)
            return
        except queue.Full:
            try:
                rollouts.get_nowait()
            except queue.Empty:
                pass


def run(setup, rollouts, records):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(setup.seed + 1)
    model = policy.build(setup.hidden).to(torch.bfloat16).eval()
    model.load_state_dict(load_file(setup.base / "model.safetensors"), strict=False)
    model.requires_grad_(False)
    transport = sync.SAMPLERS[setup.mode](setup, model)
    version = 0
    while version < setup.steps:
        begin, waited = time.perf_counter(), transport.waited_s
        rollout = sample(transport, model, generator)
        version = rollout["last_version"]
        records.put({"version": version, "at_s": begin, "took_s": time.perf_counter() - begin,
                     "waited_s": transport.waited_s - waited,
                     "tokens": rollout["answers"].numel(), "read_again": rollout["read_again"],
                     "reward": rollout["reward"].mean().item()})
        hand_over(rollouts, rollout)
    with transport.step():
        save_file({name: parameter.clone() for name, parameter in model.named_parameters()},
                  setup.sampled)
    setup.finished.set()
    transport.close()
    rollouts.cancel_join_thread()  # Nobody takes the last ones.
