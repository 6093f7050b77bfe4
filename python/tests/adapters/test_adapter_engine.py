# SPDX-License-Identifier: Apache-2.0
"""EngineReceiver on models of every family: through a store, from a trainer's publish to the last
byte of each rank, held against a plain loader."""

import dataclasses
import gc
import time

import model_families as families
import numpy
import pytest
import torch
from engine_support import Run, all_well, cluster, module_of, one_behind

import segue
from segue import (InvalidArgumentError, NotFoundError, UnavailableError, UnsupportedError,
                   VersionMismatchError)
from segue.adapters.bindings import rules, tables
from segue.adapters.engine import EngineOptions, EngineReceiver


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("family", families.FAMILIES)
def test_every_family_at_every_rank(tmp_path, family, size):
    if family == "qwen3-fp8" and size == 4:
        pytest.skip("blocks of 128 do not divide by four ranks here; the engines refuse it as well")
    run = Run(tmp_path, family)
    run.publish()
    with cluster(run, size) as engine:
        assert all_well(engine.each(lambda r: r.open())) == [0] * size
        engine.expect(0)
        all_well(engine.each(lambda r: r.update()))
        engine.expect(1)
        run.publish()
        run.publish()
        all_well(engine.each(lambda r: r.prepare()))
        states = all_well(engine.each(lambda r: r.apply(3)))
        engine.expect(3)
        assert [s["version"] for s in states] == [3] * size
        assert all(s["ready"] for s in states)


@pytest.mark.parametrize("experts", [2, 4])
def test_experts_shared_out_among_ranks(tmp_path, experts):
    with one_behind(tmp_path, "qwen3-moe", 4, experts=experts) as (_, engine):
        all_well(engine.each(lambda r: r.update()))
        engine.expect(2)


def test_weights_serve_on_between_prepare_and_apply(tmp_path):
    with one_behind(tmp_path, "llama", 2) as (_, engine):
        all_well(engine.each(lambda r: r.prepare(2, "mine")))
        engine.expect(1)
        all_well(engine.each(lambda r: r.apply(2, "mine")))
        engine.expect(2)


def test_case_E4_an_apply_that_is_repeated_changes_nothing(tmp_path):
    with one_behind(tmp_path, "llama", 2) as (_, engine):
        all_well(engine.each(lambda r: r.prepare(2)))
        for _ in range(3):
            states = all_well(engine.each(lambda r: r.apply(2)))
        engine.expect(2)
        assert [s["version"] for s in states] == [2, 2]
        all_well(engine.each(lambda r: r.update(2)))
        engine.expect(2)


def test_an_apply_of_what_was_not_prepared_is_refused(tmp_path):
    with one_behind(tmp_path, "llama", 1) as (_, engine):
        (error,) = engine.each(lambda r: r.apply(2))
        assert isinstance(error, segue.Error)
        engine.expect(1)
        all_well(engine.each(lambda r: r.prepare(2, "mine")))
        all_well(engine.each(lambda r: r.abort("mine")))
        engine.expect(1)
        all_well(engine.each(lambda r: r.update(2)))
        engine.expect(2)


@pytest.mark.parametrize("size", [1, 2])
def test_an_apply_of_another_version_than_was_prepared_is_refused(tmp_path, size):
    with one_behind(tmp_path, "llama", size) as (run, engine):
        run.publish()
        all_well(engine.each(lambda r: r.take("prepare", 2, "mine")))
        for error in engine.each(lambda r: r.take("apply", 3, "mine")):
            assert isinstance(error, VersionMismatchError)
            assert "'mine' has prepared version 2 of 'run', not 3" in str(error)
        engine.expect(1)
        all_well(engine.each(lambda r: r.take("apply", 2, "mine")))
        engine.expect(2)


def test_a_session_that_prepares_again_holds_the_later_version(tmp_path):
    with one_behind(tmp_path, "llama", 2) as (run, engine):
        run.publish()
        for version in (2, 3):
            states = all_well(engine.each(lambda r, v=version: r.take("prepare", v, "mine")))
            assert [s["target"] for s in states] == [version] * 2
        all_well(engine.each(lambda r: r.take("apply", 3, "mine")))
        engine.expect(3)


def test_what_was_prepared_and_left_does_not_stand_in_the_way(tmp_path):
    with one_behind(tmp_path, "llama", 2) as (run, engine):
        all_well(engine.each(lambda r: r.prepare(2)))
        run.publish()
        all_well(engine.each(lambda r: r.prepare(3)))
        all_well(engine.each(lambda r: r.apply(3)))
        engine.expect(3)
        run.publish()
        all_well(engine.each(lambda r: r.prepare(4)))
        run.publish()
        all_well(engine.each(lambda r: r.update(5)))
        engine.expect(5)


def test_case_E7_no_version_before_proof(tmp_path):
    run = Run(tmp_path, "llama")
    run.publish()
    with cluster(run, 1) as engine:
        (receiver,) = engine.receivers
        assert receiver.status() == {"state": "CLOSED", "ready": False, "rank": 0}
        with pytest.raises(UnavailableError, match="open\\(\\) comes first"):
            receiver.prepare()
        assert receiver.open() == 0
        assert receiver.status()["version"] == 0
        engine.expect(0)
        assert receiver.update()["version"] == 1
        assert receiver.status()["ready"] and receiver.status()["version"] == 1


# --- refusals ----------------------------------------------------------------------------------


def refused(engine, kind, match, call=lambda r: r.open(), rank=0):
    before = engine.bytes()
    results = engine.each(call)
    assert isinstance(results[rank], kind), results
    assert match in str(results[rank])
    others = [r for k, r in enumerate(results) if k != rank]
    assert all(isinstance(r, segue.Error) for r in others), results
    assert engine.bytes() == before
    return results


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("spoil", ["permuted", "folded", "one bit", "requantised"])
def test_case_C2_other_bytes_are_refused_untouched(tmp_path, spoil, size):
    run = Run(tmp_path, "llama")
    run.publish()
    with cluster(run, size) as engine:
        tensor = engine.lives[0]["model.layers.1.self_attn.o_proj.weight"]
        if spoil == "permuted":
            tensor.copy_(tensor[torch.randperm(32, generator=families.gen(1))])
        elif spoil == "folded":
            tensor.copy_(tensor.reshape(tensor.shape[0] // 2, 2, -1).transpose(0, 1)
                         .reshape(tensor.shape).clone())
        elif spoil == "one bit":
            tensor.view(torch.int16)[3, 3] ^= 1
        else:
            tensor.copy_((tensor * 1.25).to(torch.bfloat16))
        results = refused(engine, VersionMismatchError, "layers.1.self_attn.o_proj.weight")
        assert "o_proj" in str(results[-1])


def test_case_C2_a_transpose_of_the_same_shape_is_found(tmp_path):
    run = Run(tmp_path, "llama")
    run.publish()
    name = "model.layers.1.self_attn.o_proj.weight"
    with cluster(run, 2) as engine:
        for lives in engine.lives:
            lives[name].copy_(lives[name].t().clone())
        engine.open()
        run.publish()
        all_well(engine.each(lambda r: r.update()))
        for lives in engine.lives:
            lives[name] = lives[name].t()
        engine.expect(2)


@pytest.mark.parametrize("size", [1, 2])
def test_case_C2_experts_with_up_before_gate_are_found(tmp_path, size):
    """As some kernels want them: the table is wrong, the bytes tell."""
    run = Run(tmp_path, "qwen3-moe")
    run.publish()

    def swap(lives):
        for name, tensor in lives.items():
            if "w13" in name:
                tensor.copy_(tensor.roll(tensor.shape[1] // 2, 1))

    with cluster(run, size) as engine:
        for lives in engine.lives:
            swap(lives)
        engine.open()
        assert len(engine.receivers[0].probed) == 16
        run.publish()
        all_well(engine.each(lambda r: r.update()))
        for lives in engine.lives:
            swap(lives)
        engine.expect(2)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("probe", [True, False])
def test_a_wrong_table_never_writes_wrongly(tmp_path, monkeypatch, probe, size):
    run = Run(tmp_path, "llama")
    run.publish()
    wrong = dataclasses.replace(tables.DENSE, rules=(
        (tables.DENSE.rules[4][0], rules.fused("gate_up_proj", ("up_proj", "gate_proj"))),
        *tables.DENSE.rules))
    monkeypatch.setitem(tables.ARCHITECTURES, "LlamaForCausalLM", wrong)
    with cluster(run, size) as engine:
        for receiver in engine.receivers:
            receiver.options.probe = probe
        if not probe:
            refused(engine, VersionMismatchError, "layers.0.mlp.gate_proj.weight")
            return
        engine.open()
        assert len(engine.receivers[0].probed) == 4
        run.publish()
        all_well(engine.each(lambda r: r.update()))
        engine.expect(2)


@pytest.mark.parametrize("size", [1, 2])
def test_case_C2_a_padded_buffer_is_found_or_refused(tmp_path, size):
    run = Run(tmp_path, "llama")
    run.publish()
    name = "model.layers.1.self_attn.o_proj.weight"
    with cluster(run, size) as engine:
        for lives in engine.lives:
            padded = torch.zeros(lives[name].shape[0] + 3, lives[name].shape[1] + 5,
                                 dtype=torch.bfloat16)
            padded[:-3, :-5] = lives[name]
            lives[name] = padded
        engine.open()
        assert all(r.probed == [name] for r in engine.receivers)
        run.publish()
        all_well(engine.each(lambda r: r.update()))
        for lives in engine.lives:
            assert not lives[name][-3:].any() and not lives[name][:, -5:].any()
            lives[name] = lives[name][:-3, :-5]
        engine.expect(2)


def test_case_C2_a_padded_buffer_with_other_bytes_is_named(tmp_path):
    run = Run(tmp_path, "llama")
    run.publish()
    name = "model.layers.1.self_attn.o_proj.weight"
    with cluster(run, 2) as engine:
        engine.lives[1][name] = torch.ones(40, 40, dtype=torch.bfloat16)
        results = refused(engine, UnsupportedError, name, rank=1)
        assert isinstance(results[0], UnavailableError)
        assert "rank 1: UnsupportedError" in str(results[0]) and name in str(results[0])


def test_case_C4_a_parameter_of_another_dtype_is_named(tmp_path):
    run = Run(tmp_path, "qwen3-moe")
    run.publish()
    name = "model.layers.0.mlp.gate.weight"
    with cluster(run, 1) as engine:
        engine.lives[0][name] = engine.lives[0][name].to(torch.float16)
        refused(engine, UnsupportedError, name)


def test_case_C4_a_trainer_that_changes_dtype_or_shape_is_refused(tmp_path):
    run = Run(tmp_path, "llama")
    run.publish()
    for change in (lambda t: t.float(), lambda t: t.t().contiguous(), lambda t: t[:-1].clone()):
        tensors = dict(run.versions[1])
        name = "model.layers.0.mlp.down_proj.weight"
        tensors[name] = change(tensors[name])
        with pytest.raises(InvalidArgumentError, match=name):
            run.publisher.publish(tensors)
    assert run.publish() == 2


def test_case_E9_another_model_is_refused(tmp_path):
    """The same names: with other shapes, and with the same shapes from another start."""
    run = Run(tmp_path / "one", "llama")
    run.publish()
    config, other = families.dense("LlamaForCausalLM", 77)
    bigger_config, bigger = families.dense("LlamaForCausalLM", 77, intermediate_size=64)
    for k, (c, tensors) in enumerate([(config, other), (bigger_config, bigger)]):
        directory = families.write_checkpoint(tmp_path / f"other{k}", tensors, c)
        with cluster(run, 1) as engine:
            engine.lives[0].clear()
            engine.lives[0].update(families.load(c, tensors, engine.engines[0]))
            engine.receivers[0].options.checkpoint = str(directory)
            refused(engine, segue.Error, "")


def test_case_C1_tied_weights_with_two_names(tmp_path):
    """One storage, two names in the checkpoint: equal changes are made once, others refused."""
    config, tensors = families.dense("Qwen2ForCausalLM", 3, bias=True, tie_word_embeddings=True)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    families.FAMILIES["both-names"] = lambda: (config, tensors, {})
    try:
        run = Run(tmp_path, "both-names")
    finally:
        del families.FAMILIES["both-names"]

    def step(alike):
        after = families.changed(run.versions[max(run.versions)], 40 + len(run.versions))
        if alike:
            after["lm_head.weight"] = after["model.embed_tokens.weight"].clone()
        return run.publish(after)

    step(True)
    with cluster(run, 2) as engine:
        assert "lm_head.weight" not in engine.lives[0]
        engine.open()
        engine.expect(1)
        step(True)
        all_well(engine.each(lambda r: r.update()))
        engine.expect(2)
        step(False)
        before = engine.bytes()
        results = engine.each(lambda r: r.update())
        assert all(isinstance(r, segue.Error) for r in results)
        assert any(isinstance(r, InvalidArgumentError) for r in results)
        assert engine.bytes() == before


def test_parameters_that_were_replaced_are_noticed_at_every_rank(tmp_path):
    """As when an engine loads weights itself: bytes that nobody reads would pass every proof."""
    with one_behind(tmp_path, "llama", 2) as (_, engine):
        name = "model.norm.weight"
        engine.lives[1][name] = engine.lives[1][name].clone()
        refused(engine, InvalidArgumentError, name, lambda r: r.prepare(), rank=1)
        refused(engine, InvalidArgumentError, name, lambda r: r.update(), rank=1)
        refused(engine, InvalidArgumentError, name, lambda r: r.apply(2), rank=1)
        engine.expect(1)


def test_memory_that_was_replaced_lives_until_close(tmp_path):
    """A prepare that runs reads it, and the scrub does."""
    from torch.multiprocessing.reductions import StorageWeakRef
    run = Run(tmp_path, "llama")
    run.publish()
    model = module_of(run.load(run.engine()))
    receiver = EngineReceiver(model, run.options_of())
    receiver.open()
    storage = StorageWeakRef(model.model.norm.weight.untyped_storage())
    receiver.prepare(1)
    model.model.norm.weight.data = torch.zeros(4, dtype=torch.bfloat16)
    gc.collect()
    assert not storage.expired()
    with pytest.raises(InvalidArgumentError, match="model.norm.weight"):
        receiver.apply(1)
    receiver.close()
    gc.collect()
    assert storage.expired()


@pytest.mark.parametrize("kind", ["memmap", "bytes"])
def test_read_only_memory_is_refused(tmp_path, kind):
    base = {"w": torch.arange(4096, dtype=torch.float32)}
    directory = families.write_checkpoint(tmp_path / "base", base, {})
    segue.Publisher(tmp_path / "store", base=directory).publish({"w": base["w"] + 1})
    data = families.raw(base["w"])
    (tmp_path / "w").write_bytes(data)
    live = numpy.memmap(tmp_path / "w", numpy.float32, "r") if kind == "memmap" else (
        numpy.frombuffer(data, numpy.float32))
    options = EngineOptions(store=f"dir:{tmp_path}/store", checkpoint=str(directory), threads=1)
    with pytest.raises(InvalidArgumentError, match="'w': its memory is read only"):
        EngineReceiver({"w": live}, options.completed()).open()


def test_an_engine_with_parameters_of_its_own_names_them(tmp_path):
    run = Run(tmp_path, "llama")
    run.publish()
    with cluster(run, 1) as engine:
        engine.lives[0]["model.layers.0.self_attn.extra"] = torch.ones(3)
        refused(engine, UnsupportedError, "model.layers.0.self_attn.extra")
        engine.receivers[0].options.static = [r".*\.extra"]
        engine.open()


def test_options_that_are_missing_are_named(tmp_path, monkeypatch):
    for name in ("SEGUE_STORE", "SEGUE_CHECKPOINT", "SEGUE_LINEAGE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidArgumentError, match="SEGUE_STORE"):
        EngineOptions().completed()
    with pytest.raises(NotFoundError, match="SEGUE_CHECKPOINT"):
        EngineOptions(store="dir:x").completed("hub/name")
    monkeypatch.setenv("SEGUE_STORE", "dir:y")
    monkeypatch.setenv("SEGUE_CHECKPOINT", str(tmp_path))
    monkeypatch.setenv("SEGUE_PUBLIC_KEYS", "a.pem:b.pem")
    options = EngineOptions().completed("hub/name")
    assert (options.store, options.lineage) == ("dir:y", "default")
    assert options.checkpoint == str(tmp_path) and options.public_keys == ["a.pem", "b.pem"]


def test_a_scrub_finds_what_an_update_does_not_read(tmp_path):
    run = Run(tmp_path, "llama")
    run.publish()
    with cluster(run, 2, receiving={"scrub_rate": 1 << 30}) as engine:
        engine.open()
        assert all(status["ready"] for status in all_well(engine.each(lambda r: r.status())))
        engine.lives[1]["model.norm.weight"].view(torch.uint8).data[0] ^= 1
        end = time.monotonic() + 30
        while engine.receivers[1].status()["ready"] and time.monotonic() < end:
            time.sleep(0.01)
        status = engine.receivers[1].status()
        assert not status["ready"] and status["message"]
        run.publish()
        for error in engine.each(lambda r: r.update()):
            assert isinstance(error, segue.Error), "one rank that is wrong stops all"
