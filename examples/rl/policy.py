# SPDX-License-Identifier: Apache-2.0
"""The policy: a small Qwen3 with random weights, built from a configuration; a short pretraining
on a careless teacher, so that there is something to reinforce; and the GRPO loss."""

import os
import time

import torch
import torch.nn.functional as F

os.environ["HF_HUB_OFFLINE"] = "1"  # Nothing is downloaded, whatever a library looks for.
from transformers import AutoModelForCausalLM, Qwen3Config  # noqa: E402

import task


def build(hidden, layers=3):
    """A model in float32. Embeddings are tied: one tensor, no lm_head of its own."""
    return AutoModelForCausalLM.from_config(Qwen3Config(
        vocab_size=task.VOCABULARY, hidden_size=hidden, num_hidden_layers=layers,
        num_attention_heads=hidden // 32, num_key_value_heads=2, head_dim=32,
        intermediate_size=3 * hidden, max_position_embeddings=64, tie_word_embeddings=True))


def served(model):
    """{name: BF16 tensor}: the weights as samplers have them. The trainer's own stay float32."""
    return {name: parameter.detach().to(torch.bfloat16).contiguous()
            for name, parameter in model.named_parameters()}


def answer_log_probabilities(model, prompts, answers):
    """float32 [count, DIGITS] of the answers' tokens."""
    logits = model(torch.cat([prompts, answers], 1)[:, :-1]).logits[:, task.PROMPT_SIZE - 1:]
    return logits.float().log_softmax(-1).gather(2, answers.unsqueeze(2)).squeeze(2)


def pretrain(model, steps, seed, batch=128):
    """Supervised steps; afterwards the model sorts about as carelessly as its teacher."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for _ in range(steps):
        prompts, right = task.prompts(batch, generator)
        answers = task.careless(right, generator)
        loss = -answer_log_probabilities(model, prompts, answers).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def grpo_loss(model, rollout, clip=0.2):
    """Group-relative policy optimisation (DeepSeekMath, 2024, section 4.1, without the KL term): an
    answer's advantage is its reward against the others of its prompt; the probability ratio is that
    to the sampler's, whose weights may be some versions older."""
    groups = rollout["reward"].view(rollout["groups"], -1)
    spread = groups.std(1, keepdim=True) + 1e-4
    advantage = ((groups - groups.mean(1, keepdim=True)) / spread).view(-1, 1)
    now = answer_log_probabilities(model, rollout["prompts"], rollout["answers"])
    ratio = (now - rollout["log_probabilities"]).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.min(ratio * advantage, clipped * advantage).mean()


class Decoder:
    """Answers one batch of prompts token by token. Whoever calls `next_token` holds the weights for
    that one forward step. Where they have changed since the last one, what the cache keeps is of
    the old weights: the tokens so far are read again, and `read_again_s` counts such steps."""

    def __init__(self, model, prompts, generator):
        self.model, self.generator = model, generator
        self.tokens, self.log_probabilities = prompts, []
        self.cache, self.version = None, None
        self.read_again_s = 0.0

    @torch.no_grad()
    def next_token(self, version):
        begin = time.perf_counter()
        stale = self.cache is not None and version != self.version
        if stale:
            self.cache = None
        self.version = version
        unread = self.tokens if self.cache is None else self.tokens[:, -1:]
        output = self.model(unread, past_key_values=self.cache, use_cache=True)
        self.cache = output.past_key_values
        chances = F.log_softmax(output.logits[:, -1].float(), -1)
        token = torch.multinomial(chances.exp(), 1, generator=self.generator)
        self.log_probabilities.append(chances.gather(1, token))
        self.tokens = torch.cat([self.tokens, token], 1)
        if stale:
            self.read_again_s += time.perf_counter() - begin

    @property
    def answers(self):
        return self.tokens[:, task.PROMPT_SIZE:]
