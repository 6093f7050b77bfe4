# SPDX-License-Identifier: Apache-2.0
"""A model that drafts beside the engine's own, each with a lineage: one call moves both to the
same version or neither, at one rank and at two; what they share is the policy's."""

import model_families as families
import pytest
import torch
from engine_support import Run, all_well, module_of, thread_ranks, together

import segue
from segue import InvalidArgumentError, VersionMismatchError
from segue.adapters.engine import EngineReceiver


class Pair:
    """A policy and its draft at `size` ranks; both publish in step."""

    def __init__(self, tmp_path, size):
        self.runs = [Run(tmp_path / "policy", "qwen3-moe", "policy"),
                     Run(tmp_path / "draft", "llama", "draft")]
        self.engines = [[run.engine(rank, size) for rank in range(size)] for run in self.runs]
        self.lives = [[run.load(engine) for engine in engines]
                      for run, engines in zip(self.runs, self.engines, strict=True)]
        policy, draft = self.runs
        self.receivers = [
            EngineReceiver(mine, policy.options_of(draft=draft.options_of()), ranks,
                           draft_model=drafts)
            for mine, drafts, ranks in zip(*self.lives, thread_ranks(size), strict=True)]

    def publish(self):
        for run in self.runs:
            run.publish()

    def each(self, call):
        return together([lambda r=receiver: call(r) for receiver in self.receivers])

    def expect(self, policy, draft):
        for run, engines, lives, version in zip(self.runs, self.engines, self.lives,
                                                (policy, draft), strict=True):
            for engine, mine in zip(engines, lives, strict=True):
                run.expect(mine, engine, version)


@pytest.fixture(params=[1, 2])
def pair(tmp_path, request):
    pair = Pair(tmp_path, request.param)
    pair.publish()
    yield pair
    for receiver in pair.receivers:
        receiver.close()


def test_both_move_together(pair):
    assert set(all_well(pair.each(lambda r: r.open()))) == {0}
    pair.expect(0, 0)
    for status in all_well(pair.each(lambda r: r.update())):
        assert status["version"] == 1 and status["ready"]
        assert status["lineage"] == "policy" and status["draft"]["lineage"] == "draft"
        assert status["draft"]["version"] == 1 and status["draft"]["ready"]
    pair.expect(1, 1)
    pair.publish()
    states = all_well(pair.each(lambda r: r.take("prepare", 2, "mine")))
    assert {state["target"] for state in states} == {2}
    pair.expect(1, 1)
    all_well(pair.each(lambda r: r.take("apply", 2, "mine")))
    pair.expect(2, 2)
    all_well(pair.each(lambda r: r.take("apply", 2, "mine")))
    pair.expect(2, 2)


def test_the_newest_is_what_both_offer(pair):
    pair.runs[0].publish()
    all_well(pair.each(lambda r: r.open()))
    all_well(pair.each(lambda r: r.update()))
    pair.expect(1, 1)
    for error in pair.each(lambda r: r.update(2)):
        assert isinstance(error, segue.Error)
    pair.expect(1, 1)


def test_an_apply_of_another_version_is_refused(pair):
    pair.publish()
    all_well(pair.each(lambda r: r.open()))
    all_well(pair.each(lambda r: r.prepare(1, "mine")))
    for error in pair.each(lambda r: r.apply(2, "mine")):
        assert isinstance(error, VersionMismatchError)
    pair.expect(0, 0)


def test_a_draft_that_is_no_version_binds_neither(pair):
    name = "model.layers.1.self_attn.o_proj.weight"
    spoilt = pair.lives[1][0][name]
    spoilt.view(torch.int16)[3, 3] ^= 1
    results = pair.each(lambda r: r.open())
    assert isinstance(results[0], VersionMismatchError) and name in str(results[0])
    assert all(isinstance(result, segue.Error) for result in results), results
    assert pair.receivers[0].status()["state"] == "CLOSED"
    spoilt.view(torch.int16)[3, 3] ^= 1
    all_well(pair.each(lambda r: r.open()))
    all_well(pair.each(lambda r: r.update()))
    pair.expect(1, 1)


def test_a_draft_with_another_layout_is_found(pair):
    """Up before gate in one layer of the draft."""
    name = "model.layers.1.mlp.gate_up_proj.weight"

    def swap():
        for lives in pair.lives[1]:
            lives[name].copy_(lives[name].roll(lives[name].shape[0] // 2, 0))

    swap()
    all_well(pair.each(lambda r: r.open()))
    assert sorted(pair.receivers[0].probed) == [
        f"model.layers.1.mlp.{slot}_proj.weight" for slot in ("gate", "up")]
    all_well(pair.each(lambda r: r.update()))
    swap()
    pair.expect(1, 1)


def test_a_draft_parameter_that_was_replaced_is_noticed(pair):
    all_well(pair.each(lambda r: r.open()))
    pair.lives[1][0]["model.norm.weight"] = pair.lives[1][0]["model.norm.weight"].clone()
    results = pair.each(lambda r: r.update())
    assert isinstance(results[0], InvalidArgumentError) and "model.norm.weight" in str(results[0])
    assert all(isinstance(result, segue.Error) for result in results)


def test_what_a_draft_shares_is_the_policys(tmp_path):
    """As EAGLE's heads: no embedding of their own in the checkpoint, the policy's in the engine."""
    policy = Run(tmp_path / "policy", "llama", "policy")
    weight = families.rand(families.gen(9), 32, 64)
    config = {"architectures": ["EagleForCausalLM"]}
    directory = families.write_checkpoint(tmp_path / "draft", {"fc.weight": weight}, config)
    publisher = segue.Publisher(policy.store, lineage="draft", base=directory)
    policy.publish()
    after = families.changed({"fc.weight": weight}, 3)
    publisher.publish(after)
    lives = policy.load(policy.engine())
    shared = "model.embed_tokens.weight"
    draft = {"fc.weight": weight.clone(), shared: lives[shared]}
    options = policy.options_of(draft={"lineage": "draft", "checkpoint": str(directory)})
    receiver = EngineReceiver(lives, options, draft_model=module_of(draft))
    receiver.open()
    receiver.update()
    policy.expect(lives, policy.engine(), 1)
    assert families.raw(draft["fc.weight"]) == families.raw(after["fc.weight"])
    module = receiver.draft_model.get_submodule("model.embed_tokens")
    module.weight = torch.nn.Parameter(module.weight.data.clone(), requires_grad=False)
    with pytest.raises(InvalidArgumentError, match=shared):
        receiver.update()
    receiver.close()
    draft[shared] = draft[shared].clone()
    with pytest.raises(segue.UnsupportedError, match=shared):
        EngineReceiver(lives, options, draft_model=draft).open()


def test_a_draft_needs_options_and_a_lineage_of_its_own(tmp_path):
    run = Run(tmp_path, "llama", "policy")
    lives = run.load(run.engine())
    with pytest.raises(InvalidArgumentError, match="go together"):
        EngineReceiver(lives, run.options_of(), draft_model=lives)
    with pytest.raises(InvalidArgumentError, match="go together"):
        EngineReceiver(lives, run.options_of(draft={"lineage": "draft", "checkpoint": "."}))
    for draft, match in (({"lineage": "policy", "checkpoint": "."}, "its checkpoint is the pol"),
                         ({"checkpoint": "."}, "name its lineage"), ("draft", "a mapping"),
                         ({"lineage": "a", "draft": {"lineage": "b"}}, "no draft of its own")):
        with pytest.raises(InvalidArgumentError, match=match):
            run.options_of(draft=draft)
    with pytest.raises(segue.NotFoundError, match="the engine's draft model was loaded from"):
        run.options_of(draft={"lineage": "draft"})


def test_a_draft_has_from_its_policy_what_its_options_do_not_say(tmp_path):
    run = Run(tmp_path, "llama", "policy")
    asked = segue.adapters.engine.EngineOptions(
        store=run.store, lineage="policy", staging="/s", threads=3, public_keys=["a.pem"],
        scrub_rate=7, device_memory=9, keep_slots=False, decoder="processor",
        draft={"lineage": "draft", "threads": 2, "static": ["x"]})
    draft = asked.completed(str(run.directory), str(tmp_path)).draft
    assert (draft.store, draft.staging, draft.threads, draft.public_keys) == (
        run.store, "/s", 2, ["a.pem"])
    assert (draft.scrub_rate, draft.device_memory, draft.keep_slots, draft.decoder) == (
        7, 9, False, "processor")
    assert (draft.checkpoint, draft.static) == (str(tmp_path), ["x"])
    assert asked.draft.store == ""
