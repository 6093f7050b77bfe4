# SPDX-License-Identifier: Apache-2.0
"""The task: sort four digits. A prompt is `start d d d d =`, an answer four digits; every answer
can be checked, and the reward is the share of digits that stand where they belong."""

import torch

DIGITS = 4
SEPARATOR, START = 10, 11  # Tokens; 0 to 9 are the digits.
VOCABULARY = 16
PROMPT_SIZE = DIGITS + 2


def prompts(count, generator):
    """(prompts, right answers): int64 [count, PROMPT_SIZE] and [count, DIGITS]."""
    digits = torch.randint(0, 10, (count, DIGITS), generator=generator)
    start = torch.full((count, 1), START)
    separator = torch.full((count, 1), SEPARATOR)
    return torch.cat([start, digits, separator], 1), digits.sort(1).values


def reward(answers, right):
    """Share of right digits, float32 [count]."""
    return (answers == right).float().mean(1)


def careless(right, generator, errors=0.35):
    """Answers as of a teacher who writes some digits at random: what the base model learns from."""
    wrong = torch.rand(right.shape, generator=generator) < errors
    return torch.where(wrong, torch.randint(0, 10, right.shape, generator=generator), right)
