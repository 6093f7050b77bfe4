# SPDX-License-Identifier: Apache-2.0
"""Trains the trace's model: supervised first, then reinforcement learning at a tiny rate.

The second part is what the trace records. It follows the field: FP32 master weights that start at
the BF16 checkpoint, AdamW (0.9, 0.95) from a fresh state with a short warm-up, a forward pass that
sees the BF16 weights, and a group-relative policy gradient (GRPO, on-policy: one optimizer step per
batch of samples, so there is no ratio to clip).
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

from task import PROMPT_LENGTH, STRING_LENGTH

BETAS = (0.9, 0.95)
ADAM_EPS = 1e-8
GRADIENT_NORM_MAX = 1.0
ADVANTAGE_EPS = 1e-4


@dataclass(frozen=True)
class TrainingConfig:
    pretrain_steps: int
    pretrain_lr: float
    pretrain_batch: int
    lr: float
    warmup_steps: int
    prompts: int
    group: int
    pretrain_weight_decay: float = 0.1
    weight_decay: float = 0.01


class MasterWeights:
    """FP32 masters with AdamW; the model holds their BF16 values after every step."""

    def __init__(self, model, weight_decay):
        self.model = model
        self.parameters = dict(model.named_parameters())
        self.masters = {name: p.detach().clone() for name, p in self.parameters.items()}
        matrices = [m for m in self.masters.values() if m.dim() == 2]
        vectors = [m for m in self.masters.values() if m.dim() != 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": weight_decay},
             {"params": vectors, "weight_decay": 0.0}],
            betas=BETAS, eps=ADAM_EPS, foreach=False,
        )
        self._round()

    def _round(self):
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(self.masters[name].to(torch.bfloat16))

    def step(self, loss, lr):
        """One optimizer step; returns the gradient norm before clipping."""
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(
            self.parameters.values(), GRADIENT_NORM_MAX, foreach=False
        )
        for name, parameter in self.parameters.items():
            self.masters[name].grad = parameter.grad
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self._round()
        return float(norm)

    def arrays(self):
        """FP32 masters as numpy arrays, in model order."""
        return {name: master.numpy() for name, master in self.masters.items()}


def _answer_log_probabilities(model, prompts, answers):
    logits = model(torch.cat((prompts, answers[:, :-1]), dim=1))[:, PROMPT_LENGTH - 1 :]
    return torch.log_softmax(logits, -1).gather(-1, answers[:, :, None]).squeeze(-1)


def pretrain(model, task, config):
    """Supervised training from scratch; returns the loss of every step."""
    weights, losses = MasterWeights(model, config.pretrain_weight_decay), []
    for step in range(config.pretrain_steps):
        prompts = task.prompts(config.pretrain_batch)
        loss = -_answer_log_probabilities(model, prompts, task.answers(prompts)).mean()
        # Linear warm-up over a tenth, then linear decay to a tenth.
        progress = (step + 1) / config.pretrain_steps
        weights.step(loss, config.pretrain_lr * min(progress * 10, 1.1 - progress))
        losses.append(float(loss.detach()))
    return losses


@torch.no_grad()
def sample(model, prompts, generator):
    """One answer a prompt, drawn at temperature 1."""
    tokens = prompts
    for _ in range(STRING_LENGTH):
        probabilities = functional.softmax(model(tokens)[:, -1], dim=-1)
        drawn = torch.multinomial(probabilities, 1, generator=generator)
        tokens = torch.cat((tokens, drawn), dim=1)
    return tokens[:, PROMPT_LENGTH:]


def _group_advantages(rewards, group):
    grouped = rewards.view(-1, group)
    centred = grouped - grouped.mean(dim=1, keepdim=True)
    return (centred / (grouped.std(dim=1, keepdim=True) + ADVANTAGE_EPS)).view(-1)


def reinforce_steps(model, task, config, generator):
    """Endless generator of recorded steps: yields (masters, record) after each optimizer step."""
    # A fresh MasterWeights on the rounded model: masters start exactly at the BF16 checkpoint.
    weights, step = MasterWeights(model, config.weight_decay), 0
    yield weights.arrays(), None
    while True:
        prompts = task.prompts(config.prompts).repeat_interleave(config.group, dim=0)
        answers = sample(model, prompts, generator)
        rewards = task.reward(prompts, answers)
        advantages = _group_advantages(rewards, config.group)
        log_probabilities = _answer_log_probabilities(model, prompts, answers)
        loss = -(advantages[:, None] * log_probabilities).mean()
        lr = config.lr * min(1.0, (step + 1) / max(1, config.warmup_steps))
        norm = weights.step(loss, lr)
        step += 1
        yield weights.arrays(), {
            "lr": lr,
            "reward": float(rewards.mean()),
            "loss": float(loss.detach()),
            "entropy_estimate": -float(log_probabilities.detach().mean()),
            "gradient_norm": norm,
        }
