# SPDX-License-Identifier: Apache-2.0
"""The trainer process: takes what was sampled last, makes a GRPO step, sends the new weights on."""

import time

import torch
from safetensors.torch import load_file, save_file

import policy
import sync

# Rollouts of weights this many versions old are thrown away.
LAG_MAX = 4


def take(rollouts, count, version):
    """`count` of the last rollouts as one; waits for those that are not there or too old."""
    taken = []
    while len(taken) < count:
        rollout = rollouts.get(timeout=120)
        if version - rollout["version"] <= LAG_MAX:
            taken.append(rollout)
    joined = {name: torch.cat([rollout[name] for rollout in taken])
              for name in ("prompts", "answers", "log_probabilities", "reward")}
    return {**joined, "groups": sum(rollout["groups"] for rollout in taken),
            "version": min(rollout["version"] for rollout in taken)}


def run(setup, rollouts, records):
    torch.set_num_threads(1)
    torch.manual_seed(setup.seed)
    model = policy.build(setup.hidden)
    model.load_state_dict(load_file(setup.trainer_base), strict=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=setup.learning_rate, weight_decay=0.0)
    transport = sync.TRAINERS[setup.mode](setup)
    for step in range(1, setup.steps + 1):
        rollout = take(rollouts, setup.batches, step - 1)
        loss = policy.grpo_loss(model, rollout)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        weights = policy.served(model)
        begin = time.perf_counter()
        sent = transport.send(weights, step)
        reward = rollout["reward"].mean().item()
        records.put(("trainer", {"step": step, "reward": reward,
                                 "lag": step - 1 - rollout["version"],
                                 "send_s": time.perf_counter() - begin, **sent}))
        if step % 10 == 0:
            print(f"{setup.mode}: step {step} of {setup.steps}, reward {reward:.2f}", flush=True)
    save_file(weights, setup.final)
    # Until the sampler has the last version, too: a broadcast needs both.
    setup.finished.wait(timeout=120)
    transport.close()
