# SPDX-License-Identifier: Apache-2.0
"""Tables: for each family of architectures, which rule a tensor of its checkpoints follows.

Both engines name and fuse these layers alike but for details that rules look for by themselves
(`first_of`, where experts lie). Names and fusing were read in vllm 0.33.0 and sglang 0.5.23. A
table that is wrong for another release ends in a refusal, see docs/engines.md.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from . import experts
from .checkpoint import architecture_of, number_in
from .rules import (Rule, by_name, columns, first_of, fused, fused_on_disk, latent, rows,
                    vocabulary)

QKV = ("q_proj", "k_proj", "v_proj")
GATE_UP = ("gate_proj", "up_proj")
_qkv = fused("qkv_proj", QKV, heads=("k_proj", "v_proj"))
_gate_up = fused("gate_up_proj", GATE_UP)


@dataclasses.dataclass(frozen=True)
class Table:
    """Rules in order, the first that matches counts; `skipped`: tensors that engines do not load,
    unless a draft is `Joined`; `static`: parameters that no checkpoint has and that do not depend
    on one."""

    rules: tuple[tuple[re.Pattern, Rule], ...]
    skipped: tuple[re.Pattern | LayersFrom, ...] = (re.compile(r".*\.rotary_emb\.inv_freq"),)
    static: tuple[re.Pattern, ...] = (re.compile(r".*\.rotary_emb\..*"),)


def _rules(*entries: tuple[str, Rule]) -> tuple[tuple[re.Pattern, Rule], ...]:
    return tuple((re.compile(pattern), rule) for pattern, rule in entries)


def _module(path: str, slots: tuple[str, ...]) -> str:
    return rf"(?P<prefix>(?:.*\.)?{path})(?P<slot>{'|'.join(slots)})\.(?P<leaf>\w+)"


def _sections_of_qkv(config: Mapping, _rows: int) -> list[tuple[int, bool]]:
    heads = number_in(config, "num_attention_heads")
    size = number_in(config, "head_dim", 0) or number_in(config, "hidden_size") // max(heads, 1)
    keys = number_in(config, "num_key_value_heads") * size
    return [(heads * size, False), (keys, True), (keys, True)]


def _halves(_config: Mapping, height: int) -> list[tuple[int, bool]]:
    return [(height // 2, False), (height // 2, False)]


_ENDS = _rules((r"(?:.*\.)?embed_tokens\.weight", vocabulary()),
               (r"(?:.*\.)?(?:lm_head|shared_head\.head)\.(?:weight|bias)", vocabulary()))
_REST = _rules((r".*", by_name))
_ATTENTION = _rules(
    (_module(r"self_attn\.", QKV), first_of(_qkv, rows)),
    (_module(r"self_attn\.", ("o_proj",)), columns))
_MLP = _rules(
    (_module(r"mlp\.", GATE_UP), first_of(_gate_up, rows)),
    (_module(r"mlp\.", ("down_proj",)), columns))
_FUSED_ON_DISK = _rules(
    (_module(r"self_attn\.", ("qkv_proj",)), fused_on_disk("qkv_proj", _sections_of_qkv)),
    (_module(r"mlp\.", ("gate_up_proj",)), fused_on_disk("gate_up_proj", _halves)))
_EXPERTS = _rules(
    (r"(?P<prefix>.*\.experts\.)(?P<expert>\d{1,9})\.(?P<slot>gate_proj|up_proj|down_proj|w[123])\."
     r"(?P<leaf>\w+)", experts.per_expert),
    (r"(?P<prefix>.*\.experts\.)gate_up_proj(?:\.(?P<leaf>weight)|(?P<bare>))",
     experts.all_experts("gate_proj")),
    (r"(?P<prefix>.*\.experts\.)down_proj(?:\.(?P<leaf>weight)|(?P<bare>))",
     experts.all_experts("down_proj")))
_SHARED = _rules(
    (rf"(?P<prefix>.*\.mlp\.)shared_experts?\.(?P<slot>{'|'.join(GATE_UP)}|down_proj)\."
     r"(?P<leaf>\w+)", first_of(
         lambda context, stored, match: _shared(context, stored), experts.shared_as_expert)),)
_LATENT = _rules(
    (_module(r"self_attn\.", ("q_a_proj", "kv_a_proj_with_mqa")), first_of(
        fused("fused_qkv_a_proj_with_mqa", ("q_a_proj", "kv_a_proj_with_mqa")),
        fused("fused_qkv_a_proj", ("q_a_proj", "kv_a_proj_with_mqa")), by_name)),
    (_module(r"self_attn\.indexer\.", ("wk", "weights_proj")), first_of(
        fused("wk_weights_proj", ("wk", "weights_proj")), by_name)),
    (_module(r"self_attn\.", ("q_b_proj",)), rows),
    (_module(r"self_attn\.", ("kv_b_proj",)), latent))


def _shared(context, stored):
    """A shared expert with a layer of its own."""
    gate_up = re.fullmatch(_module(r"shared_experts?\.", GATE_UP), stored.name)
    if gate_up:
        return first_of(_gate_up, rows)(context, stored, gate_up)
    return columns(context, stored, None)


DENSE = Table(_ENDS + _ATTENTION + _MLP + _REST)
ON_DISK = Table(_ENDS + _FUSED_ON_DISK + _ATTENTION + _MLP + _REST)
MIXTURE = Table(_ENDS + _EXPERTS + _SHARED + _ATTENTION + _MLP + _REST)
LATENT = Table(_ENDS + _EXPERTS + _SHARED + _LATENT + _ATTENTION + _MLP + _REST)
# For what has no table: equal names and shapes, and probing.
UNKNOWN = Table(_REST)

ARCHITECTURES = {
    "LlamaForCausalLM": DENSE,
    "MistralForCausalLM": DENSE,
    "Qwen2ForCausalLM": DENSE,
    "Qwen3ForCausalLM": DENSE,
    "Phi3ForCausalLM": ON_DISK,
    "GlmForCausalLM": ON_DISK,
    "Glm4ForCausalLM": ON_DISK,
    "MixtralForCausalLM": MIXTURE,
    "Qwen2MoeForCausalLM": MIXTURE,
    "Qwen3MoeForCausalLM": MIXTURE,
    "Glm4MoeForCausalLM": MIXTURE,
    "DeepseekV2ForCausalLM": LATENT,
    "DeepseekV3ForCausalLM": LATENT,
    "DeepseekV32ForCausalLM": LATENT,
}


class LayersFrom:
    """Names of `count` layers behind the first `first`, asked as patterns are."""

    def __init__(self, first: int, count: int):
        self._first, self._count = first, count

    def fullmatch(self, name: str) -> bool:
        found = _LAYER.match(name)
        return found is not None and 0 <= int(found[1]) - self._first < self._count


_LAYER = re.compile(r"model\.layers\.(\d{1,9})\.")


def table_for(config: Mapping) -> Table:
    """The table of the first architecture that config.json names, and what it skips: the layers of
    multi-token prediction, which lie behind the model's own."""
    table = ARCHITECTURES.get(architecture_of(config), UNKNOWN)
    if table is UNKNOWN:
        return table
    layers = number_in(config, "num_hidden_layers", 0)
    extra = number_in(config, "num_nextn_predict_layers", 0)
    if not layers or not extra:
        return table
    return dataclasses.replace(table, skipped=(*table.skipped, LayersFrom(layers, extra)))
