# SPDX-License-Identifier: Apache-2.0
"""A draft out of its policy's checkpoint (a layer of multi-token prediction): one lineage holds
both, each tensor is written where the engine's draft module keeps it, and what is not found there
is refused, at one rank and at two, under the names of either engine."""

import json

import model_families as families
import pytest
import engine_stubs as stubs
import torch
from engine_support import Run, all_well, module_of, thread_ranks, together

import segue
from segue import InvalidArgumentError, UnsupportedError
from segue.adapters.bindings import Joined
from segue.adapters.engine import EngineOptions, EngineReceiver

LAYER = "model.layers.2."
BESIDE = ("enorm", "hnorm", "eh_proj", "shared_head", "embed_tokens")


@pytest.fixture(autouse=True)
def _family(monkeypatch):
    """DeepSeek with a whole layer behind the model's own, as checkpoints have it."""
    def make():
        config, tensors = families.latent(31, num_hidden_layers=3)
        generator = families.gen(32)
        for name in ("enorm.weight", "hnorm.weight"):
            tensors[LAYER + name] = families.rand(generator, config["hidden_size"])
        tensors[LAYER + "shared_head.head.weight"] = families.rand(generator, 100, 32)
        tensors[LAYER + "embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        return {**config, "num_hidden_layers": 2}, tensors, {"derived": True}

    monkeypatch.setitem(families.FAMILIES, "deepseek-mtp", make)


def vllm_name(rest):
    return LAYER + rest if rest.startswith(BESIDE) else f"{LAYER}mtp_block.{rest}"


def sglang_name(rest):
    return f"model.{rest}" if rest.startswith(BESIDE) else f"model.decoder.{rest}"


NAMES = pytest.mark.parametrize("name_of", [vllm_name, sglang_name])


def draft_of(run, engine, version=0):
    """What a loader makes of the layer, by the rest of its names in the checkpoint."""
    tensors = {n: t for n, t in run.versions[version].items() if n.startswith(LAYER)}
    made = families.load({**run.config, "num_hidden_layers": 3}, tensors, engine)
    made.pop(LAYER + "embed_tokens.weight")
    head = LAYER + "shared_head.head.weight"
    padded = torch.zeros(128, 32, dtype=made[head].dtype)
    padded[:100] = made[head]
    made[head] = families.cut(padded, 0, engine.rank, engine.size)
    return {name.removeprefix(LAYER): tensor for name, tensor in made.items()}


class Joint:
    """A policy with its draft at `size` ranks."""

    def __init__(self, tmp_path, size, name_of, runner=False):
        self.run = Run(tmp_path, "deepseek-mtp", "policy")
        self.engines = [self.run.engine(rank, size, runner=runner) for rank in range(size)]
        self.lives = [self.run.load(engine) for engine in self.engines]
        self.drafts = [draft_of(self.run, engine) for engine in self.engines]
        self.policies = [module_of(lives) for lives in self.lives]
        # The draft has the policy's embedding, as engines share it.
        self.modules = [module_of({name_of(rest): t for rest, t in draft.items()})
                        for draft in self.drafts]
        for policy, module in zip(self.policies, self.modules, strict=True):
            module.get_submodule("model").embed_tokens = policy.get_submodule("model.embed_tokens")
        options = self.run.options_of(draft={"lineage": "policy"})
        self.receivers = [
            EngineReceiver(policy, options, ranks, draft_model=module) for policy, module, ranks in
            zip(self.policies, self.modules, thread_ranks(size), strict=True)]

    def each(self, call):
        return together([lambda r=receiver: call(r) for receiver in self.receivers])

    def expect(self, version):
        for lives, draft, engine in zip(self.lives, self.drafts, self.engines, strict=True):
            self.run.expect(lives, engine, version)
            expected = draft_of(self.run, engine, version)
            assert draft.keys() == expected.keys()
            for name, tensor in draft.items():
                assert families.raw(tensor) == families.raw(expected[name]), (name, version)


@NAMES
@pytest.mark.parametrize("size", [1, 2])
def test_both_are_of_one_lineage(tmp_path, size, name_of):
    joint = Joint(tmp_path, size, name_of, runner=name_of is vllm_name)
    joint.run.publish()
    assert set(all_well(joint.each(lambda r: r.open()))) == {0}
    assert joint.receivers[0].probed == []
    for status in all_well(joint.each(lambda r: r.update())):
        assert (status["version"], status["draft"]["version"]) == (1, 1)
        assert status["draft"]["lineage"] == "policy"
    joint.expect(1)
    joint.run.publish()
    all_well(joint.each(lambda r: r.take("prepare", 2, "mine")))
    joint.expect(1)
    all_well(joint.each(lambda r: r.take("apply", 2, "mine")))
    joint.expect(2)
    for receiver in joint.receivers:
        receiver.close()


def test_a_head_that_the_draft_shares_is_the_policys(tmp_path):
    """As vLLM does; what the checkpoint has for it is in nobody's way."""
    joint = Joint(tmp_path, 1, vllm_name, runner=True)
    del joint.drafts[0]["shared_head.head.weight"]
    joint.modules[0].get_submodule(LAYER + "shared_head").head = (
        joint.policies[0].get_submodule("lm_head"))
    joint.run.publish()
    (receiver,) = joint.receivers
    receiver.open()
    receiver.update()
    joint.run.expect(joint.lives[0], joint.engines[0], 1)
    assert families.raw(joint.drafts[0]["eh_proj.weight"]) == families.raw(
        joint.run.versions[1][LAYER + "eh_proj.weight"])
    receiver.close()


def test_a_layer_under_names_that_nobody_knows_is_refused(tmp_path):
    joint = Joint(tmp_path, 1, lambda rest: f"model.drafter.{rest}")
    joint.run.publish()
    with pytest.raises(UnsupportedError, match=r"model\.drafter\.e"):
        joint.receivers[0].open()


def test_without_a_table_the_draft_is_looked_for_by_its_bytes(tmp_path):
    """Under a name that the policy has too, as Qwen3-Next's in vLLM."""
    generator = families.gen(5)
    inner, norm = "model.layers.0.mlp.up_proj.weight", "model.norm.weight"
    tensors = {name: families.rand(generator, *shape) for name, shape in (
        (inner, (48, 32)), (norm, (32,)), ("mtp.layers.0.mlp.up_proj.weight", (48, 32)),
        ("mtp.fc.weight", (32, 64)))}
    directory = families.write_checkpoint(tmp_path / "base", tensors,
                                          {"architectures": ["NewForCausalLM"]})
    store = f"dir:{tmp_path / 'store'}"
    publisher = segue.Publisher(store, lineage="policy", base=directory)
    policy = {name: tensors[name].clone() for name in (inner, norm)}
    draft = {inner: tensors["mtp.layers.0.mlp.up_proj.weight"].clone(),
             "model.fc.weight": tensors["mtp.fc.weight"].clone()}
    after = families.changed(tensors, 3)
    publisher.publish(after)
    options = EngineOptions(store=store, lineage="policy", checkpoint=str(directory), threads=1,
                            draft={"lineage": "policy"}).completed()
    receiver = EngineReceiver(module_of(policy), options, draft_model=module_of(draft))
    receiver.open()
    assert sorted(receiver.probed) == ["mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight"]
    receiver.update()
    held = {**policy, "mtp.layers.0.mlp.up_proj.weight": draft[inner],
            "mtp.fc.weight": draft["model.fc.weight"]}
    assert {n: families.raw(t) for n, t in held.items()} == {
        n: families.raw(t) for n, t in after.items()}
    receiver.close()


@NAMES
def test_a_parameter_of_the_draft_that_no_tensor_reaches_is_named(tmp_path, name_of):
    joint = Joint(tmp_path, 1, name_of)
    joint.modules[0].register_parameter("hot_tokens", torch.nn.Parameter(torch.ones(7)))
    joint.run.publish()
    with pytest.raises(UnsupportedError, match="hot_tokens"):
        joint.receivers[0].open()
    options = joint.run.options_of(draft={"lineage": "policy", "static": ["hot_tokens"]})
    receiver = EngineReceiver(joint.policies[0], options, draft_model=joint.modules[0])
    receiver.open()
    receiver.update()
    joint.expect(1)
    receiver.close()


def test_a_draft_parameter_that_was_replaced_is_noticed(tmp_path):
    joint = Joint(tmp_path, 1, sglang_name)
    joint.run.publish()
    (receiver,) = joint.receivers
    receiver.open()
    parameter = joint.modules[0].get_parameter("model.eh_proj.weight")
    parameter.data = parameter.data.clone()
    with pytest.raises(InvalidArgumentError, match=LAYER + "eh_proj"):
        receiver.update()
    joint.expect(0)
    receiver.close()


@NAMES
def test_what_the_draft_shares_it_must_go_on_to_share(tmp_path, name_of):
    """Otherwise it would compute with an embedding that no update reaches."""
    joint = Joint(tmp_path, 1, name_of)
    joint.run.publish()
    (receiver,) = joint.receivers
    receiver.open()
    receiver.update()
    shared = joint.modules[0].get_submodule("model").embed_tokens
    joint.modules[0].get_submodule("model").embed_tokens = module_of(
        {"weight": shared.weight.data.clone()})
    joint.run.publish()
    with pytest.raises(InvalidArgumentError, match=r"draft\.model\.embed_tokens\.weight"):
        receiver.update()
    joint.expect(1)
    receiver.close()


def test_no_name_stands_for_two_of_the_drafts_parameters(tmp_path):
    """One of them would be hidden, and stay as it is."""
    joint = Joint(tmp_path, 1, vllm_name)
    joint.modules[0].get_submodule("model.layers.2").add_module("input_layernorm", module_of(
        {"weight": torch.ones(32)}))
    # In the policy a parameter, in the draft a buffer.
    joint.modules[0].get_submodule("model").add_module("norm", torch.nn.Module())
    joint.modules[0].get_submodule("model.norm").register_buffer("weight", torch.ones(32))
    both = Joined(joint.policies[0], joint.modules[0], joint.run.directory)
    names = [name for kind in (both.named_parameters, both.named_buffers) for name, _ in kind()]
    assert len(set(names)) == len(names) and "draft.model.norm.weight" in names
    assert len([name for name in names if LAYER in name and "input_layernorm" in name]) == 2
    joint.run.publish()
    with pytest.raises(UnsupportedError, match=r"draft\.model"):
        joint.receivers[0].open()


def test_options_of_a_joined_draft_are_its_policys(tmp_path):
    run = Run(tmp_path, "deepseek-mtp", "policy")
    for said in ({"store": "dir:/elsewhere"}, {"checkpoint": "/elsewhere"}, {"threads": 9}):
        with pytest.raises(InvalidArgumentError, match=f"its {next(iter(said))} is the policy's"):
            run.options_of(draft={"lineage": "policy", **said})
    lives = run.load(run.engine())
    options = run.options_of(draft={"lineage": "policy"})
    with pytest.raises(InvalidArgumentError, match="modules of torch"):
        EngineReceiver(lives, options, draft_model=module_of({}))


def test_sglangs_draft_worker_out_of_the_same_checkpoint(tmp_path, monkeypatch):
    """By a command, as any other."""
    monkeypatch.setattr(torch.distributed, "barrier", lambda group=None: None)
    joint = Joint(tmp_path, 1, sglang_name)
    joint.run.publish()
    with stubs.installed("sglang") as sglang:
        path = str(joint.run.directory)
        manager = stubs.SchedulerWeightUpdaterManager(
            joint.policies[0], path, drafts=[stubs.runner(joint.modules[0], path)])
        started = sglang._started(manager, "target")
        status = sglang.run(started, sglang.Command("open", options={
            "store": joint.run.store, "lineage": "policy", "threads": 1,
            "draft": {"lineage": "policy"}}))
        assert json.loads(json.dumps(status))["draft"]["version"] == 0
        sglang.run(started, sglang.Command("update"))
        joint.expect(1)
        sglang.run(started, sglang.Command("close"))
