# SPDX-License-Identifier: Apache-2.0
"""A small decoder-only transformer with the tensor names of Llama and Qwen checkpoints.

Why our own: the trace needs a real network with real gradients, not a framework; and the names and
shapes (grouped key-value heads, SwiGLU, RMSNorm, untied head) are those that Segue meets in the
field. Written for clarity: sequences are short, so there is no key-value cache.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

INIT_STD = 0.02
NORM_EPS = 1e-6
ROTARY_BASE = 10_000.0


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the network; head size is hidden / heads."""

    vocab: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int


# small: 272 is no multiple of 128, so FP8 meets partial blocks; key and value have 64 rows.
PRESETS = {
    "tiny": ModelConfig(vocab=24, hidden=32, intermediate=48, layers=1, heads=2, kv_heads=1),
    "small": ModelConfig(vocab=96, hidden=128, intermediate=272, layers=2, heads=4, kv_heads=2),
    "medium": ModelConfig(vocab=512, hidden=384, intermediate=1024, layers=6, heads=6, kv_heads=2),
    "large": ModelConfig(
        vocab=4096, hidden=1024, intermediate=2816, layers=12, heads=16, kv_heads=4
    ),
}


def _linear(rows_in, rows_out):
    return nn.Linear(rows_in, rows_out, bias=False)


class RmsNorm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPS) * self.weight


def _rotate(x, cosine, sine):
    """Rotary positions on [batch, head, token, size]; pairs are (i, i + size / 2)."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), dim=-1)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_size = config.hidden // config.heads
        kv_size = config.kv_heads * self.head_size
        self.q_proj = _linear(config.hidden, config.hidden)
        self.k_proj = _linear(config.hidden, kv_size)
        self.v_proj = _linear(config.hidden, kv_size)
        self.o_proj = _linear(config.hidden, config.hidden)

    def _split(self, x, heads):
        batch, tokens, _ = x.shape
        return x.view(batch, tokens, heads, self.head_size).transpose(1, 2)

    def _share(self, x):
        """Repeats each key-value head for its group of query heads."""
        batch, heads, tokens, size = x.shape
        copies = self.heads // self.kv_heads
        return x[:, :, None].expand(-1, -1, copies, -1, -1).reshape(batch, -1, tokens, size)

    def forward(self, x, cosine, sine, mask):
        batch, tokens, hidden = x.shape
        query = _rotate(self._split(self.q_proj(x), self.heads), cosine, sine)
        key = self._share(_rotate(self._split(self.k_proj(x), self.kv_heads), cosine, sine))
        value = self._share(self._split(self.v_proj(x), self.kv_heads))
        scores = query @ key.transpose(-1, -2) * self.head_size**-0.5 + mask
        mixed = torch.softmax(scores, dim=-1) @ value
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, tokens, hidden))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = _linear(config.hidden, config.intermediate)
        self.up_proj = _linear(config.hidden, config.intermediate)
        self.down_proj = _linear(config.intermediate, config.hidden)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config.hidden)
        self.mlp = Mlp(config)

    def forward(self, x, cosine, sine, mask):
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.head_size = config.hidden // config.heads
        self.embed_tokens = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RmsNorm(config.hidden)

    def forward(self, tokens):
        length, half = tokens.shape[1], self.head_size // 2
        frequency = ROTARY_BASE ** (-torch.arange(half) / half)
        angle = torch.arange(length)[:, None] * frequency
        mask = torch.full((length, length), float("-inf")).triu(1)
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, angle.cos(), angle.sin(), mask)
        return self.norm(x)


class LanguageModel(nn.Module):
    """Next-token logits; parameter names begin with model. and lm_head. as in checkpoints."""

    def __init__(self, config, generator):
        super().__init__()
        self.model = Decoder(config)
        self.lm_head = _linear(config.hidden, config.vocab)
        output_std = INIT_STD * (2 * config.layers) ** -0.5
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() == 2:
                    residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                    parameter.normal_(0, output_std if residual else INIT_STD, generator=generator)

    def forward(self, tokens):
        return self.lm_head(self.model(tokens))
