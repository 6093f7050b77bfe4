# SPDX-License-Identifier: Apache-2.0
"""The task the trace's model learns: sort a short string of letters. Answers can be checked.

Why this one: a small transformer learns it in a few hundred steps, an answer is right or wrong
without a judge (as in reinforcement learning on mathematics), and the letters follow Zipf's law, so
embeddings see common, rare and never used tokens like those of a real vocabulary.
"""

import torch

BEGIN, SEPARATOR, FIRST_LETTER = 0, 1, 2
STRING_LENGTH = 8
PROMPT_LENGTH = STRING_LENGTH + 2
LETTER_COUNT_MAX = 64


class SortTask:
    """Draws prompts `BEGIN letters SEPARATOR`; the right answer is the letters in order."""

    def __init__(self, vocab, generator):
        # Two thirds of the vocabulary at most: the other rows stay unused, as in real ones.
        count = min(LETTER_COUNT_MAX, (vocab - FIRST_LETTER) * 2 // 3)
        self.generator = generator
        weight = 1.0 / (1.0 + torch.arange(count))
        # Rank and order are unrelated: shuffle, or sorting would only be sorting by frequency.
        self.weight = weight[torch.randperm(count, generator=generator)]

    def prompts(self, count):
        draws = torch.multinomial(
            self.weight.expand(count, -1), STRING_LENGTH, replacement=True,
            generator=self.generator,
        )
        begin = torch.full((count, 1), BEGIN)
        separator = torch.full((count, 1), SEPARATOR)
        return torch.cat((begin, draws + FIRST_LETTER, separator), dim=1)

    @staticmethod
    def answers(prompts):
        return prompts[:, 1 : 1 + STRING_LENGTH].sort(dim=1).values

    def reward(self, prompts, answers):
        """Half for a wholly right answer, half by the share of letters in their place.

        The second half keeps a gradient alive while wholly right answers are still rare.
        """
        right = answers == self.answers(prompts)
        return 0.5 * right.all(dim=1).float() + 0.5 * right.float().mean(dim=1)
