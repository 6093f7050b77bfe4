# SPDX-License-Identifier: Apache-2.0
"""Draft models through the commands of the vLLM and SGLang adapters, on stubs that carry the
engines' signatures: the adapter finds the draft where the engine keeps it, one call moves it with
its policy or neither, and what cannot be moved so is refused by name."""

import base64
import json
import sys
import types

import model_families as families
import pytest
import engine_stubs as stubs
import torch
from engine_support import Run, Source, module_of
from http_support import serving

import segue
from segue import InvalidArgumentError, NotFoundError, UnavailableError, UnsupportedError


class Models:
    """A policy and a draft, published in step, and the modules that an engine holds of them."""

    def __init__(self, tmp_path, published=True):
        self.runs = [Run(tmp_path / "policy", "qwen3-moe", "policy"),
                     Run(tmp_path / "draft", "llama", "draft")]
        self.engines = [run.engine() for run in self.runs]
        self.lives = [run.load(engine)
                      for run, engine in zip(self.runs, self.engines, strict=True)]
        self.policy, self.draft = (module_of(lives, str(run.directory))
                                   for lives, run in zip(self.lives, self.runs, strict=True))
        if published:
            self.publish()

    @property
    def store(self):
        return self.runs[0].store

    @property
    def info(self):
        """What opening takes: the draft's store is another one, its checkpoint the engine's."""
        return {"store": self.store, "lineage": "policy", "threads": 1,
                "draft": {"store": self.runs[1].store, "lineage": "draft"}}

    def publish(self):
        for run in self.runs:
            run.publish()

    def expect(self, policy, draft):
        for run, lives, engine, version in zip(self.runs, self.lives, self.engines,
                                               (policy, draft), strict=True):
            run.expect(lives, engine, version)


@pytest.fixture
def models(tmp_path):
    return Models(tmp_path)


# --- vLLM --------------------------------------------------------------------------------------


@pytest.fixture
def vllm():
    with stubs.installed("vllm") as module:
        module.register()
        yield module


def config_of(models, speculative=True):
    draft = types.SimpleNamespace(
        draft_model_config=types.SimpleNamespace(model=str(models.runs[1].directory)))
    return types.SimpleNamespace(
        parallel_config=types.SimpleNamespace(tensor_parallel_size=1),
        model_config=types.SimpleNamespace(model=str(models.runs[0].directory)),
        speculative_config=draft if speculative else None)


def worker_of(vllm, models, draft=True):
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    worker = stubs.VllmWorker(config_of(models, draft), models.policy, WeightTransferEngineFactory,
                              models.draft if draft else None)
    worker.__class__ = type("Worker", (type(worker), vllm.WorkerExtension), {})
    return worker


def session(worker, info, draft=False):
    (worker.start_draft_weight_update if draft else worker.start_weight_update)()
    worker.update_weights(info)
    worker.finish_weight_update()


def test_the_extension_finds_vllms_draft_and_moves_both(vllm, models):
    worker = worker_of(vllm, models)
    status = worker.segue_open(**models.info)
    assert status["version"] == 0 and status["draft"]["lineage"] == "draft"
    worker.segue_update(1, "prepare")
    models.expect(0, 0)
    status = worker.segue_update(1, "apply")
    assert (status["version"], status["draft"]["version"]) == (1, 1) and status["ready"]
    models.expect(1, 1)


@pytest.mark.parametrize("name", ["drafter", "speculator"])
def test_the_extension_finds_the_draft_of_releases_that_do_not_say_it(vllm, models, name):
    worker = worker_of(vllm, models)
    captured = types.SimpleNamespace(unwrap=lambda: models.draft)
    plain = types.SimpleNamespace(
        vllm_config=worker.vllm_config, model_runner=types.SimpleNamespace(
            get_model=lambda: models.policy, **{name: types.SimpleNamespace(model=captured)}))
    older = vllm.WorkerExtension()
    vars(older).update(vars(plain))
    assert older.segue_open(**models.info)["draft"]["version"] == 0
    older.segue_update()
    models.expect(1, 1)


def test_a_draft_that_is_behind_keeps_its_policy_back(vllm, models):
    worker = worker_of(vllm, models)
    worker.segue_open(**models.info)
    models.runs[0].publish()
    with pytest.raises(segue.Error):
        worker.segue_update(2)
    models.expect(0, 0)
    assert worker.segue_update()["version"] == 1
    models.expect(1, 1)


def test_a_draft_that_cannot_be_moved_keeps_its_policy_back(vllm, models):
    worker = worker_of(vllm, models)
    worker.segue_open(**models.info)
    parameter = models.draft.get_parameter("model.norm.weight")
    parameter.data = parameter.data.clone()
    with pytest.raises(InvalidArgumentError, match=r"model\.norm\.weight"):
        worker.segue_update(1)
    models.expect(0, 0)


def test_a_draft_that_is_no_version_is_named_and_neither_is_bound(vllm, models):
    worker = worker_of(vllm, models)
    name = "model.layers.1.self_attn.o_proj.weight"
    models.lives[1][name].view(torch.int16)[3, 3] ^= 1
    with pytest.raises(segue.VersionMismatchError, match=name):
        worker.segue_open(**models.info)
    assert worker.segue_status()["state"] == "CLOSED"


def test_an_engine_without_a_draft_says_so(vllm, models):
    worker = worker_of(vllm, models, draft=False)
    with pytest.raises(NotFoundError, match="the engine's draft model was loaded from"):
        worker.segue_open(**models.info)
    info = models.info
    info["draft"]["checkpoint"] = str(models.runs[1].directory)
    with pytest.raises(UnsupportedError, match="'draft' is of a draft, and this engine has no"):
        worker.segue_open(**info)
    assert worker.segue_open(store=models.store, lineage="policy")["version"] == 0


def test_vllm_hands_its_draft_over_in_a_session_and_any_session_moves_both(vllm, models):
    worker = worker_of(vllm, models)
    worker.init_weight_transfer_engine(models.info)
    with pytest.raises(UnavailableError, match="start_draft_weight_update"):
        worker.start_weight_update()
    worker.start_draft_weight_update()
    worker.finish_weight_update()
    assert worker.segue_status()["draft"]["version"] == 0
    models.expect(0, 0)
    session(worker, {"version": 1})
    models.expect(1, 1)
    models.publish()
    session(worker, {"version": 2, "action": "prepare"})
    models.expect(1, 1)
    session(worker, {"version": 2, "action": "apply"}, draft=True)
    models.expect(2, 2)
    first = worker.weight_transfer_engine._receiver
    worker.init_weight_transfer_engine(models.info)
    assert worker.weight_transfer_engine._receiver is first
    worker.weight_transfer_engine.shutdown()
    models.expect(2, 2)


def test_a_draft_session_without_a_lineage_for_it_is_refused(vllm, models):
    worker = worker_of(vllm, models)
    worker.init_weight_transfer_engine({"store": models.store, "lineage": "policy"})
    with pytest.raises(InvalidArgumentError, match="names no lineage of it"):
        worker.start_draft_weight_update()
    session(worker, {"version": 1})
    models.expect(1, 0)


def test_a_draft_that_vllm_has_replaced_is_noticed(vllm, models):
    worker = worker_of(vllm, models)
    worker.init_weight_transfer_engine(models.info)
    worker.start_draft_weight_update()
    worker.finish_weight_update()
    other = module_of(models.runs[1].load(models.engines[1]))
    worker.model_runner.get_draft_model = lambda: other
    for start in (worker.start_draft_weight_update, worker.start_weight_update):
        with pytest.raises(InvalidArgumentError, match="vLLM has replaced the draft model"):
            start()
    models.expect(0, 0)
    worker.init_weight_transfer_engine(models.info)
    session(worker, {"version": 1})
    assert worker.segue_status()["draft"]["version"] == 1
    bound = worker.weight_transfer_engine._receiver
    assert bound.draft_model is other
    worker.init_weight_transfer_engine(models.info)
    assert worker.weight_transfer_engine._receiver is bound
    held = families.raw(other.get_parameter("model.norm.weight"))
    assert held == families.raw(models.runs[1].versions[1]["model.norm.weight"])


@pytest.mark.parametrize("with_draft", [False, True])
def test_an_initialisation_that_failed_is_told_as_that(vllm, models, with_draft):
    worker = worker_of(vllm, models)
    info = {**models.info, "checkpoint": "/nowhere"}
    if with_draft:
        worker.init_weight_transfer_engine(info)
        with pytest.raises(segue.Error):
            worker.start_draft_weight_update()
    else:
        del info["draft"]
        with pytest.raises(segue.Error):
            worker.init_weight_transfer_engine(info)
    with pytest.raises(UnavailableError, match="has failed; call it again"):
        worker.weight_transfer_engine.finish_weight_update()


class Client:
    """vLLM's control plane, in this process."""

    def __init__(self, worker, *missing):
        for name in ("init_weight_transfer_engine", "start_weight_update", "update_weights",
                     "start_draft_weight_update"):
            if name not in missing:
                setattr(self, name, getattr(worker, name))
        self.finish_weight_update = lambda weight_version=None: worker.finish_weight_update()


def trainer_of(models, client, rank=0):
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    policy, draft = models.runs
    vllm = sys.modules["segue.adapters.vllm"]
    info = vllm.SegueTrainerInitInfo(
        store=policy.store, lineage="policy", base=str(policy.directory), rank=rank,
        draft={"store": draft.store, "lineage": "draft", "base": str(draft.directory)},
        engine={"draft": {"store": draft.store}, "threads": 1},
        draft_source=Source(families.changed(draft.base, 40)))
    source = Source(families.changed(policy.base, 41))
    return WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)


def test_a_trainer_sends_both_under_one_number(vllm, tmp_path):
    models = Models(tmp_path, published=False)
    trainer = trainer_of(models, Client(worker_of(vllm, models)))
    for version in (1, 2):
        for run, source in zip(models.runs, (trainer.source, trainer.draft_source), strict=True):
            source.tensors = families.changed(source.tensors, version)
            run.versions[version] = source.tensors
        trainer.send_weights()
        models.expect(version, version)
    other = trainer_of(models, None, rank=1)
    other.send_weights()
    assert (other.source.passes, other.draft_source.passes) == (1, 1)
    assert other.publisher is None and other.draft_publisher is None


def test_a_trainer_sends_a_draft_out_of_its_policys_checkpoint_with_it(vllm, tmp_path):
    """It has nothing to publish for it, and the engines bind it all the same."""
    called = []
    client = types.SimpleNamespace(
        init_weight_transfer_engine=lambda options: called.append(options),
        start_draft_weight_update=lambda: called.append("draft"),
        finish_weight_update=lambda: called.append("finish"))
    run = Run(tmp_path, "llama", "policy")
    vllm.SegueTrainerWeightTransferEngine.trainer_init(
        vllm.SegueTrainerInitInfo(store=run.store, lineage="policy", base=str(run.directory),
                                  rank=0, engine={"draft": {"lineage": "policy"}}),
        client=client, source=Source({}))
    assert called == [{"store": run.store, "lineage": "policy", "draft": {"lineage": "policy"}},
                      "draft", "finish"]


@pytest.mark.parametrize("draft, match", [
    ({"base": "b"}, "names the lineage"), ({"lineage": "policy", "base": "b"}, "not a draft's")])
def test_a_trainer_publishes_no_draft_into_its_policys_lineage(vllm, tmp_path, draft, match):
    """The one after the other would be refused by the plan, with the first one published."""
    run = Run(tmp_path, "llama", "policy")
    info = vllm.SegueTrainerInitInfo(store=run.store, lineage="policy", base=str(run.directory),
                                     rank=1, draft=draft, draft_source=Source({}))
    with pytest.raises(InvalidArgumentError, match=match):
        vllm.SegueTrainerWeightTransferEngine.trainer_init(info, client=None, source=Source({}))


def test_a_draft_that_cannot_be_published_leaves_both_as_they_are(vllm, tmp_path):
    models = Models(tmp_path, published=False)
    trainer = trainer_of(models, Client(worker_of(vllm, models)))
    whole = trainer.draft_source.tensors
    trainer.draft_source.tensors = dict(list(whole.items())[:3])
    with pytest.raises(InvalidArgumentError):
        trainer.send_weights()
    models.expect(0, 0)
    trainer.draft_source.tensors = whole
    trainer.send_weights()
    for run, source in zip(models.runs, (trainer.source, trainer.draft_source), strict=True):
        run.versions[2] = source.tensors
    models.expect(2, 2)


def test_what_a_trainer_with_a_draft_needs(vllm, tmp_path):
    models = Models(tmp_path, published=False)
    client = Client(worker_of(vllm, models), "start_draft_weight_update")
    with pytest.raises(InvalidArgumentError, match="a client with start_draft_weight_update"):
        trainer_of(models, client)
    info = vllm.SegueTrainerInitInfo(store="", draft={"lineage": "draft"}, rank=0)
    with pytest.raises(InvalidArgumentError, match="go together"):
        vllm.SegueTrainerWeightTransferEngine.trainer_init(info, client=client, source=Source({}))


def test_control_over_http_moves_both(vllm, models):
    from segue.adapters import vllm_http
    worker, spoilt = worker_of(vllm, models), []

    def answer(path, body):
        if path != "/collective_rpc":
            return 200, {}
        status = getattr(worker, body["method"])(**body["kwargs"])
        if spoilt:
            status["draft"]["version"] = spoilt.pop()
        return 200, {"results": [status]}

    with serving(answer) as url:
        driver = vllm_http.VLLMControl(url, timeout_s=20)
        assert driver.open(**models.info)["draft"]["version"] == 0
        assert driver.update(1)["draft"]["version"] == 1
        models.expect(1, 1)
        models.publish()
        driver._prepare(2)
        worker.segue_status()
        worker._segue_receiver._receiver.wait_prepared()
        spoilt.append(1)
        with pytest.raises(vllm_http.NotFinishedError, match="the draft of rank 0 is at 1"):
            driver.finish(2)
        driver.finish(2)
    models.expect(2, 2)
    sys.modules.pop("segue.adapters.vllm_http", None)


# --- SGLang ------------------------------------------------------------------------------------


@pytest.fixture
def sglang(monkeypatch):
    monkeypatch.setattr(torch.distributed, "barrier", lambda group=None: None)
    with stubs.installed("sglang") as module:
        sys.modules.pop("segue.adapters.sglang_http", None)
        yield module
    sys.modules.pop("segue.adapters.sglang_http", None)


class Scheduler:
    """A scheduler whose update method is hooked, with `drafts` draft runners."""

    def __init__(self, sglang, models, drafts=1):
        self.sglang = sglang
        runners = [stubs.runner(models.draft, str(models.runs[1].directory))] * drafts
        self.manager = stubs.SchedulerWeightUpdaterManager(
            models.policy, str(models.runs[0].directory), drafts=runners)

    def handle(self, body):
        return self.sglang.answer(None, self.manager,
                                  stubs.UpdateWeightsFromTensorReqInput(**body))

    def send(self, *command, selector="target", **options):
        from segue.adapters import sglang_http
        payload = sglang_http._payload(self.sglang.Command(*command, **options))
        return self.handle({"serialized_named_tensors": [base64.b64decode(payload)],
                            "load_format": self.sglang.LOADER, "selector": selector})


def status_of(answer):
    assert answer.success, answer.message
    return json.loads(answer.message.removeprefix("segue:"))


@pytest.mark.parametrize("selector", ["target", "all"])
def test_sglangs_draft_worker_is_found_and_moves_with_the_target(sglang, models, selector):
    scheduler = Scheduler(sglang, models)
    status = status_of(scheduler.send("open", options=models.info, selector=selector))
    assert status["draft"] == {**status["draft"], "lineage": "draft", "version": 0}
    again = scheduler.send("open", options=models.info, selector=selector)
    assert status_of(again)["draft"]["version"] == 0
    status_of(scheduler.send("prepare", 1, selector=selector))
    models.expect(0, 0)
    status = status_of(scheduler.send("apply", 1, selector=selector))
    assert (status["version"], status["draft"]["version"]) == (1, 1)
    models.expect(1, 1)
    other = models.info
    other["draft"]["lineage"] = "elsewhere"
    assert "other options" in scheduler.send("open", options=other).message


def test_a_command_for_the_draft_alone_is_refused(sglang, models):
    scheduler = Scheduler(sglang, models)
    answer = scheduler.send("open", options=models.info, selector="draft")
    assert not answer.success and "moves with its policy" in answer.message


def test_without_a_lineage_the_draft_stays(sglang, models):
    scheduler = Scheduler(sglang, models)
    info = {**models.info, "draft": None}
    status_of(scheduler.send("open", options=info, selector="all"))
    status_of(scheduler.send("update", 1, selector="all"))
    models.expect(1, 0)


@pytest.mark.parametrize("drafts", [0, 2])
def test_schedulers_that_have_not_one_draft_model(sglang, models, drafts):
    """None, or one for each step as multi-layer EAGLE has."""
    answer = Scheduler(sglang, models, drafts).send("open", options=models.info)
    assert not answer.success and f"this scheduler has {drafts} " in answer.message


@pytest.mark.parametrize("side", ["policy", "draft"])
def test_models_that_sglang_itself_would_not_update_are_refused(sglang, models, side):
    module = getattr(models, side).get_submodule("model.layers")
    module._derived_weight_cache_error = "a graph keeps what was derived from these weights"
    answer = Scheduler(sglang, models).send("open", options=models.info)
    assert not answer.success and "UnsupportedError: a graph keeps" in answer.message
    if side == "draft":
        info = {**models.info, "draft": None}
        assert Scheduler(sglang, models).send("open", options=info).success


def test_the_loader_alone_cannot_reach_a_draft(sglang, models):
    command = sglang.Command("open", options=models.info)
    with pytest.raises(UnsupportedError, match="this scheduler has 0 "):
        sglang.load(models.policy, [(command.name(), torch.empty(0))])


def test_control_over_http_moves_both_models_of_sglang(sglang, models):
    from segue.adapters import sglang_http
    scheduler = Scheduler(sglang, models)

    def answer(path, body):
        if path != "/update_weights_from_tensor":
            return 200, {}
        result = scheduler.handle({**body, "serialized_named_tensors": [
            base64.b64decode(payload) for payload in body["serialized_named_tensors"]]})
        return 200, {"success": result.success, "message": result.message}

    with serving(answer) as url:
        driver = sglang_http.SGLangControl(url)
        assert driver.open(**models.info)["draft"]["version"] == 0
        assert driver.update()["draft"]["version"] == 1
    models.expect(1, 1)
    assert scheduler.manager.version == "1"
