# SPDX-License-Identifier: Apache-2.0
"""The sampler process: generates answers all the time, with whatever weights are there."""

import contextlib
import multiprocessing
import queue
import time

import torch
from safetensors.torch import load_file, save_file

import policy
import sync
import task

GROUPS, GROUP_SIZE = 16, 8  # Prompts of a batch, answers to each.


def sample(transport, model, generator):
    """One batch, as the trainer takes it, and what it was like to make it."""
    begin, waited_s = time.perf_counter(), transport.waited_s
    prompts, right = task.prompts(GROUPS, generator)
    prompts = prompts.repeat_interleave(GROUP_SIZE, 0)
    right = right.repeat_interleave(GROUP_SIZE, 0)
    decoder = policy.Decoder(model, prompts, generator)
    versions = []
    for _ in range(task.DIGITS):
        with transport.step() as version:  # The weights stay as they are for this forward step.
            decoder.next_token(version)
        versions.append(version)
    answers = decoder.answers
    reward = task.reward(answers, right)
    rollout = {"version": versions[0], "groups": GROUPS, "prompts": prompts, "answers": answers,
               "log_probabilities": torch.cat(decoder.log_probabilities, 1), "reward": reward}
    record = {"version": versions[-1], "at_s": begin, "took_s": time.perf_counter() - begin,
              "waited_s": transport.waited_s - waited_s, "read_again_s": decoder.read_again_s,
              "tokens": answers.numel(), "reward": reward.mean().item()}
    return rollout, record


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


def drain(rollouts):
    """Takes back what nobody else takes any more: a queue ends once it has handed on everything."""
    with contextlib.suppress(queue.Empty):
        while True:
            rollouts.get(timeout=0.2)


def run(setup, rollouts, records):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(setup.seed + 1)
    model = policy.build(setup.hidden).to(torch.bfloat16).eval().requires_grad_(False)
    model.load_state_dict(load_file(setup.base / "model.safetensors"), strict=False)
    transport = sync.SAMPLERS[setup.mode](setup, model)
    version, parent = 0, multiprocessing.parent_process()
    while version < setup.steps and parent.is_alive():
        rollout, record = sample(transport, model, generator)
        version = record["version"]
        records.put(("sampler", record))
        hand_over(rollouts, rollout)
    with transport.step():
        save_file({name: parameter.clone() for name, parameter in model.named_parameters()},
                  setup.sampled)
    setup.finished.set()
    transport.close()
    drain(rollouts)
