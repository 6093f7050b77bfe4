# SPDX-License-Identifier: Apache-2.0
"""What an engine computes with and no update would reach is named and refused: parameters that only
begin where a bound one does, parts of parameters, zeros that may be weights, buffers."""

import model_families as families
import pytest
import torch
from engine_support import module_of

from segue import UnsupportedError
from segue.adapters import bindings

A, B = families.rand(families.gen(1), 16, 32), families.rand(families.gen(2), 16, 32)
ZEROS = torch.zeros(16, 32, dtype=torch.bfloat16)


def plan(tmp_path, base, model, architecture="Strange", **options):
    directory = families.write_checkpoint(tmp_path / "base", base,
                                          {"architectures": [architecture]})
    return bindings.plan_bindings(bindings.Checkpoint(directory), model, **options)


@pytest.mark.parametrize("views", [
    {"fused": lambda f: f},  # Begins where a bound one does, and is longer.
    {"tail": lambda f: f[8:24]},
    {"rest": lambda f: f[16:]}])
def test_a_parameter_that_is_bound_in_part(tmp_path, views):
    fused = torch.cat([A, B])
    lives = {"a.w": fused[:16], "b.w": B.clone()}
    lives.update({name: view(fused) for name, view in views.items()})
    (name,) = views
    with pytest.raises(UnsupportedError, match=f"'{name}': an update would leave it"):
        plan(tmp_path, {"a.w": A, "b.w": B}, lives)
    with pytest.raises(UnsupportedError, match=name):
        plan(tmp_path, {"a.w": A, "b.w": B}, module_of(lives))


def test_views_of_what_is_bound_wholly_are_bound(tmp_path):
    a = A.clone()
    lives = {"a.w": a, "same": a, "transposed": a.t(), "inner": a[3:7, 2:5], "b.w": B.clone()}
    assert len(plan(tmp_path, {"a.w": A, "b.w": B}, lives).parts) == 2


def test_what_lies_in_the_gaps_of_a_bound_parameter(tmp_path):
    wide = torch.cat([A, B], 1)
    lives = {"a.w": wide[:, :32], "gap": wide[:, 32:]}
    with pytest.raises(UnsupportedError, match="'gap'"):
        plan(tmp_path, {"a.w": A}, lives)


def test_a_slot_of_which_the_checkpoint_has_no_tensor(tmp_path):
    """`up_proj` of one expert is missing: its half of the parameter would stay as it is."""
    config, base = families.mixture("Qwen3MoeForCausalLM", 5)
    lives = families.load(config, base, families.Engine())
    del base["model.layers.1.mlp.experts.2.up_proj.weight"]
    directory = families.write_checkpoint(tmp_path / "base", base, config)
    with pytest.raises(UnsupportedError, match="layers.1.*w13_weight.*512 of its 4096 elements"):
        bindings.plan_bindings(bindings.Checkpoint(directory), lives)


def test_zeros_are_padding_only_where_no_tensor_is_zeros(tmp_path):
    with pytest.raises(UnsupportedError, match="'w'.*beside zeros.*'z'"):
        plan(tmp_path, {"w": A, "z": ZEROS}, {"wz": torch.cat([A, ZEROS]), "z": ZEROS.clone()})
    half = torch.cat([ZEROS, B])
    with pytest.raises(UnsupportedError, match="'w'.*beside zeros.*'half'"):
        plan(tmp_path / "half", {"w": A, "half": half},
             {"wz": torch.cat([A, ZEROS]), "half": half[:16].clone()},
             topology=bindings.Topology(0, 2))
    assert plan(tmp_path / "none", {"w": A}, {"wz": torch.cat([A, ZEROS])}).probed == ["w"]


def test_buffers_that_the_checkpoint_has_not(tmp_path):
    base = {"a.w": A, "b.w": B}
    model = module_of({name: tensor.clone() for name, tensor in base.items()})
    model.register_buffer("packed", torch.cat([A, B]).float(), persistent=False)
    with pytest.raises(UnsupportedError, match="'packed'.*'static' pattern"):
        plan(tmp_path, base, model)
    assert plan(tmp_path, base, model, static=["packed"]).parts
    model.packed = model.a.w.data.t()
    assert plan(tmp_path, base, model).parts
    model.add_module("rotary_emb", torch.nn.Module())
    model.rotary_emb.register_buffer("cos_sin_cache", torch.ones(4))
    with pytest.raises(UnsupportedError, match="rotary"):
        plan(tmp_path, base, model)
    model.add_module("layer", torch.nn.Module())
    model.layer.rotary_emb, model.rotary_emb = model.rotary_emb, None
    assert plan(tmp_path, base, model).parts


def test_scales_that_an_engine_makes_up_where_the_checkpoint_has_none(tmp_path):
    """vLLM's attention registers them as buffers of ones, and fills them from the checkpoint."""
    base = {"attn.w": A}
    model = module_of({name: tensor.clone() for name, tensor in base.items()})
    for name in ("_k_scale", "_v_scale", "_q_scale", "_prob_scale"):
        model.attn.register_buffer(name, torch.tensor(1.0))
    assert plan(tmp_path, base, model).parts
    scale = torch.full((), 0.5, dtype=torch.float32)
    for name in ("attn.k_scale", "attn.k_proj.output_scale", "attn.kv_scale"):
        lives = module_of({"attn.w": A.clone(), name: scale.clone()})
        lives.attn.register_buffer("_k_scale", scale.clone())
        with pytest.raises(UnsupportedError, match="'attn._k_scale': an update would leave it"):
            plan(tmp_path / name, {**base, name: scale}, lives)
