# SPDX-License-Identifier: Apache-2.0
"""Tensors that are alike in the base: bound only where something beside their bytes says which is
which, since a proof cannot notice that two of them were bound the wrong way round."""

import contextlib

import model_families as families
import pytest
import torch
from engine_support import Run, cluster

import segue
from segue import UnsupportedError, VersionMismatchError
from segue.adapters import bindings

EXPERT = "model.layers.{}.mlp.experts.{}.{}.weight"
SLOTS = ("gate_proj", "up_proj", "down_proj")


@contextlib.contextmanager
def family(config, base, **options):
    families.FAMILIES["twins"] = lambda: (config, base, options)
    try:
        yield "twins"
    finally:
        del families.FAMILIES["twins"]


def run_of(tmp_path, config, base):
    with family(config, base) as name:
        run = Run(tmp_path, name)
    run.publish()
    return run


def mixture_with(pairs, slots=SLOTS):
    """(layer, expert, other): the other is made alike the expert."""
    config, base = families.mixture("Qwen3MoeForCausalLM", 5)
    for layer, expert, other in pairs:
        for slot in slots:
            base[EXPERT.format(layer, other, slot)] = base[
                EXPERT.format(layer, expert, slot)].clone()
    return config, base


def permute(lives, order, layer=0):
    for name, tensor in lives.items():
        if f"layers.{layer}." in name and ".experts." in name:
            tensor.copy_(tensor[order[:len(tensor)]].clone())


def refused(engine, match):
    before = engine.bytes()
    results = engine.each(lambda r: r.open())
    assert all(isinstance(r, segue.Error) for r in results), results
    assert any(match in str(r) for r in results), results
    assert engine.bytes() == before


# The last two agree with the base under the table: nothing in the bytes shows the permutation.
@pytest.mark.parametrize("order", [[1, 2, 0, 3], [0, 2, 1, 3], [1, 0, 3, 2], [1, 0, 2, 3],
                                   [0, 1, 2, 3]])
def test_experts_that_are_alike_are_refused(tmp_path, order):
    run = run_of(tmp_path, *mixture_with([(0, 0, 1)]))
    with cluster(run, 1) as engine:
        permute(engine.lives[0], order)
        refused(engine, "experts.0.down_proj.weight")


@pytest.mark.parametrize("slots", [("gate_proj",), ("gate_proj", "up_proj"), ("down_proj",)])
def test_experts_that_are_alike_in_part(tmp_path, slots):
    """What differs tells where the expert is; where it is elsewhere, the rest has no place."""
    run = run_of(tmp_path, *mixture_with([(0, 0, 1)], slots))
    with cluster(run, 1) as engine:
        engine.open()
        engine.expect(1)
    for order in ([1, 2, 0, 3], [1, 0, 2, 3], [1, 0, 3, 2]):
        with cluster(run, 1) as engine:
            permute(engine.lives[0], order)
            refused(engine, f".{slots[0]}.weight")


def test_experts_in_one_tensor_that_are_alike(tmp_path):
    config, base = families.experts_in_one("Qwen3MoeForCausalLM", 8)
    for name in ("gate_up_proj", "down_proj"):
        tensor = base[f"model.layers.1.mlp.experts.{name}"]
        tensor[2] = tensor[3]
    run = run_of(tmp_path, config, base)
    with cluster(run, 1) as engine:
        refused(engine, "experts.2")
    base["model.layers.1.mlp.experts.down_proj"][2] += 1
    run = run_of(tmp_path / "other", config, base)
    with cluster(run, 1) as engine:
        engine.open()
        engine.expect(1)


def test_experts_that_are_alike_at_one_rank_alone(tmp_path):
    """Whole tensors differ, the slices of rank 0 do not."""
    config, base = mixture_with([(0, 0, 1)])
    for slot in SLOTS:
        tensor = base[EXPERT.format(0, 1, slot)]
        half = tensor.chunk(2, 1 if slot == "down_proj" else 0)[1]
        half += 1
    run = run_of(tmp_path, config, base)
    with cluster(run, 2) as engine:
        for lives in engine.lives:
            permute(lives, [1, 2, 0, 3])
        refused(engine, "experts.0.")
    with cluster(run, 1) as engine:
        engine.open()
        engine.expect(1)


def test_experts_that_are_alike_at_two_ranks(tmp_path):
    """Each rank has its own experts, and each is one of twins."""
    with family(*mixture_with([(0, 0, 2)])) as name:
        run = Run(tmp_path, name)
    run.publish()
    with cluster(run, 2, experts=2) as engine:
        order = [[1, 2], [3, 0]]
        for lives, engine_of, mine in zip(engine.lives, engine.engines, order, strict=True):
            whole = run.load(families.Engine())
            for tensor_name in lives:
                if "layers.0." in tensor_name and ".experts." in tensor_name:
                    lives[tensor_name].copy_(whole[tensor_name][mine])
            assert engine_of.experts == 2
        refused(engine, "experts.0.")


def names_of_a_strange_model(twins):
    base = {f"h.{k}.w": families.rand(families.gen(k), 16, 32) for k in range(4)}
    base.update({f"h.{k}.ln": torch.ones(32, dtype=families.BF16) for k in range(4)})
    if twins:
        base["h.1.w"] = base["h.0.w"].clone()
    return {"architectures": ["Strange"], "tie_word_embeddings": False}, base


def strange(tmp_path, base, lives, config=None):
    directory = families.write_checkpoint(tmp_path / "base", base,
                                          config or {"architectures": ["Strange"]})
    return bindings.plan_bindings(bindings.Checkpoint(directory), lives)


def test_names_alone_do_not_tell_numbered_twins(tmp_path):
    _, base = names_of_a_strange_model(twins=True)
    with pytest.raises(UnsupportedError, match="'h.0.ln'.*nothing tells 'h.0'"):
        strange(tmp_path, base, dict(base))
    _, base = names_of_a_strange_model(twins=False)
    assert len(strange(tmp_path / "other", base, dict(base)).parts) == 8


def test_without_a_table_words_do_not_tell_twins(tmp_path):
    tensor = families.rand(families.gen(1), 16, 32)
    base = {"first.w": tensor, "second.w": tensor.clone()}
    with pytest.raises(UnsupportedError, match="'first.w'.*'second.w'.*no table"):
        strange(tmp_path, base, dict(base))


def test_norms_of_ones_are_what_the_table_says(tmp_path):
    run = Run(tmp_path, "llama")
    run.publish()
    with cluster(run, 2) as engine:
        engine.open()
        engine.expect(1)


def test_words_of_a_rule_that_was_wrong_are_not_trusted(tmp_path):
    """Layer 0 has gate and up alike, and an engine that has up before gate in both layers."""
    config, base = families.dense("LlamaForCausalLM", 5)
    base["model.layers.0.mlp.up_proj.weight"] = base["model.layers.0.mlp.gate_proj.weight"].clone()
    run = run_of(tmp_path, config, base)
    with cluster(run, 1) as engine:
        engine.open()
        engine.expect(1)
    with cluster(run, 1) as engine:
        for name, tensor in engine.lives[0].items():
            if "gate_up" in name:
                tensor.copy_(tensor.roll(tensor.shape[0] // 2, 0))
        refused(engine, "layers.0.mlp.gate_proj.weight")


def test_a_suspect_of_another_rank_is_one_here(tmp_path):
    config, base = families.dense("LlamaForCausalLM", 5)
    base["model.layers.0.mlp.up_proj.weight"] = base["model.layers.0.mlp.gate_proj.weight"].clone()
    run = run_of(tmp_path, config, base)
    with cluster(run, 2) as engine:
        fused = engine.lives[1]["model.layers.1.mlp.gate_up_proj.weight"]
        fused.copy_(fused.roll(fused.shape[0] // 2, 0))
        before = engine.bytes()
        results = engine.each(lambda r: r.open())
        assert all(isinstance(r, VersionMismatchError) for r in results), results
        assert all("layers.0.mlp.gate_proj.weight" in str(r) for r in results), results
        assert engine.bytes() == before


def test_what_is_probed_has_no_twin_among_what_was_placed(tmp_path):
    tensor = families.rand(families.gen(1), 24, 16)
    base = {"new": tensor, "old": tensor.clone()}
    for lives in ({"old": tensor.clone(), "elsewhere": tensor.clone()}, {"old": tensor.clone()}):
        with pytest.raises(UnsupportedError, match="'new'"):
            strange(tmp_path, base, lives)
