# SPDX-License-Identifier: Apache-2.0
"""The SGLang adapter on stubs that carry SGLang's signatures (test_engine_signatures.py), and its
HTTP control against a server that behaves as SGLang's endpoints are documented to."""

import base64
import contextlib
import json
import subprocess
import sys
import threading
import types

import model_families as families
import pytest
import engine_stubs as stubs
import torch
from engine_support import Run, module_of
from http_support import serving

from segue import (InvalidArgumentError, TaintedError, UnavailableError, UnsupportedError)


@pytest.fixture
def sglang(monkeypatch):
    stubs.HookRegistry.hooks.clear()
    monkeypatch.setattr(torch.distributed, "barrier", lambda group=None: None)
    with stubs.installed("sglang") as module:
        sys.modules.pop("segue.adapters.sglang_http", None)
        yield module
    sys.modules.pop("segue.adapters.sglang_http", None)


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path, "qwen2-moe")
    run.publish()
    return run


class Engine:
    """A scheduler with a model, its update method hooked as SGLang does it."""

    def __init__(self, run, adapter, hooked=True):
        self.run, self.adapter, self.engine = run, adapter, run.engine()
        self.lives = run.load(self.engine)
        self.model = module_of(self.lives, str(run.directory))
        self.manager = stubs.SchedulerWeightUpdaterManager(self.model, str(run.directory))
        self.log = self.manager.log
        if hooked:
            adapter.register()
            ((target, (hook, kind)),) = stubs.HookRegistry.hooks.items()
            assert target == adapter.HOOKED and kind is stubs.HookType.AROUND
            original = stubs.SchedulerWeightUpdaterManager.update_weights_from_tensor
            self.handle = lambda request: hook(original, self.manager, request)

    def send(self, command, **request):
        from segue.adapters import sglang_http
        payload = base64.b64decode(sglang_http._payload(command))
        return self.handle(stubs.UpdateWeightsFromTensorReqInput(
            serialized_named_tensors=[payload], load_format=self.adapter.LOADER,
            selector="target", **request))

    def open(self):
        """Binds the model and brings it to the newest version."""
        options = {"store": self.run.store, "lineage": "run", "threads": 1}
        answer = self.send(self.adapter.Command("open", options=options), flush_cache=True)
        return self.send(self.adapter.Command("update")) if answer.success else answer

    def expect(self, version):
        self.run.expect(self.lives, self.engine, version)


def status_of(answer):
    assert answer.success, answer.message
    return json.loads(answer.message.removeprefix("segue:"))


def test_the_plugin_carries_out_commands(sglang, run):
    engine = Engine(run, sglang)
    assert status_of(engine.send(sglang.Command("status")))["state"] == "CLOSED"
    assert status_of(engine.open())["version"] == 1
    engine.expect(1)
    run.publish()
    prepared = status_of(engine.send(sglang.Command("prepare"), flush_cache=False))
    assert prepared["target"] == 2
    engine.expect(1)
    answer = engine.send(sglang.Command("apply", 2), weight_version="step 2")
    assert status_of(answer)["version"] == 2
    engine.expect(2)
    assert engine.manager.version == "step 2"
    run.publish()
    assert status_of(engine.send(sglang.Command("update")))["version"] == 3
    engine.expect(3)
    assert status_of(engine.send(sglang.Command("close")))["state"] == "CLOSED"
    assert not engine.send(sglang.Command("update")).success


def test_case_E3_caches_are_flushed_once_after_the_last_byte(sglang, run):
    engine = Engine(run, sglang)
    engine.open()
    run.publish()
    engine.log.clear()
    engine.send(sglang.Command("prepare"), flush_cache=False)
    engine.send(sglang.Command("status"), flush_cache=True)
    assert engine.log == []
    engine.send(sglang.Command("apply", 2), weight_version="2")
    assert engine.log == [("version", "2"), ("flush", True)]
    engine.send(sglang.Command("apply", 2), flush_cache=False)
    assert engine.log == [("version", "2"), ("flush", True)]


def test_case_E2_a_flush_that_fails_is_told_and_can_be_repeated(sglang, run):
    engine = Engine(run, sglang)
    engine.open()
    run.publish()
    engine.manager.flushes = [False, True]
    answer = engine.send(sglang.Command("update", 2), weight_version="2")
    assert not answer.success and "cache was not flushed" in answer.message
    engine.expect(2)
    assert engine.send(sglang.Command("apply", 2), weight_version="2").success
    assert engine.log[-1] == ("flush", True)


def test_refusals_are_answers_and_the_scheduler_lives_on(sglang, run):
    engine = Engine(run, sglang)
    answer = engine.send(sglang.Command("update"))
    assert not answer.success and "open comes first" in answer.message
    answer = engine.send(sglang.Command("open", options={"store": "dir:/nowhere/at/all"}))
    assert not answer.success and answer.message.startswith("segue:")
    answer = engine.send(sglang.Command("open", options={"shop": 1}))
    assert not answer.success and "shop" in answer.message
    engine.open()
    answer = engine.send(sglang.Command("open", options={"store": "dir:/elsewhere"}))
    assert not answer.success and "other options" in answer.message
    answer = engine.send(sglang.Command("update", 99))
    assert not answer.success
    engine.expect(1)
    name, parameter = next(iter(engine.model.named_parameters()))
    parameter.data = parameter.data.clone()
    answer = engine.send(sglang.Command("update"))
    assert not answer.success and name in answer.message


def test_what_is_not_for_segue_goes_on_to_sglang(sglang, run):
    engine = Engine(run, sglang)
    request = stubs.UpdateWeightsFromTensorReqInput(serialized_named_tensors=[b""])
    assert engine.handle(request).message == "Success"
    assert engine.log == [("sglang's own", None)]


def test_the_loader_alone_does_the_same_and_raises(sglang, run, monkeypatch):
    engine = Engine(run, sglang, hooked=False)

    def load(command):
        sglang.load(engine.model, [(command.name(), torch.empty(0))])

    with pytest.raises(UnavailableError, match="open comes first"):
        load(sglang.Command("update"))
    monkeypatch.setenv("SEGUE_STORE", run.store)
    monkeypatch.setenv("SEGUE_LINEAGE", "run")
    load(sglang.Command("open"))
    engine.expect(0)
    load(sglang.Command("update"))
    engine.expect(1)
    run.publish()
    load(sglang.Command("update"))
    engine.expect(2)
    with pytest.raises(InvalidArgumentError, match="takes weights from a store"):
        sglang.load(engine.model, [("model.norm.weight", torch.zeros(3))])
    with pytest.raises(InvalidArgumentError, match="no command"):
        sglang.load(engine.model, [])
    for name in ("segue:", "segue:[]", 'segue:{"action": "fly"}', 'segue:{"action": "apply"}',
                 'segue:{"action": "update", "to": -1}', 'segue:{"action": "abort"}',
                 'segue:{"action": "update", "to": true}'):
        with pytest.raises(InvalidArgumentError):
            sglang.load(engine.model, [(name, torch.empty(0))])
    engine.expect(2)


@pytest.mark.parametrize("field", ["pp_size", "attn_cp_size", "moe_dp_size"])
def test_ways_to_run_in_parallel_that_are_not_known(sglang, run, field, monkeypatch):
    monkeypatch.setattr(stubs, "PARALLEL", types.SimpleNamespace(tp_size=1, **{field: 2}))
    answer = Engine(run, sglang).open()
    assert not answer.success and field in answer.message


def test_without_sglang_the_module_says_what_is_missing():
    code = ("import sys; sys.modules['sglang'] = None\n"
            "from segue.adapters import sglang, sglang_http\n"
            "assert 'torch' not in sys.modules\n"
            "try:\n    sglang.register()\n"
            "except Exception as error:\n    print(type(error).__name__, error)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("UnsupportedError SGLang's plugins are not there")


# --- over HTTP ---------------------------------------------------------------------------------


@contextlib.contextmanager
def server(engine, answers=None):
    """SGLang's endpoints before `engine`. `answers`: path -> what it says instead, once each."""
    log, answers = [], answers or {}

    def answer(path, body):
        log.append((path, body))
        if answers.get(path):
            return answers[path].pop(0)
        if path != "/update_weights_from_tensor":
            return 200, {}
        request = {**body, "serialized_named_tensors": [
            base64.b64decode(p) for p in body["serialized_named_tensors"]]}
        result = engine.handle(stubs.UpdateWeightsFromTensorReqInput(**request))
        return 200 if result.success else 400, {"success": result.success,
                                                "message": result.message}

    with serving(answer) as url:
        yield url, log


def paths(log):
    """What was asked, in order; a command by its action, polls left out."""
    result = []
    for path, body in log:
        if path == "/update_weights_from_tensor":
            text = base64.b64decode(body["serialized_named_tensors"][0])
            path = json.loads(text[text.index(b'{"'):text.index(b"}}") + 2])["action"]
        if path != "status":
            result.append(path)
    return result


def control(sglang, url, **options):
    from segue.adapters import sglang_http
    return sglang_http.SGLangControl(url, **options)


def opened(sglang, engine, url, **options):
    driver = control(sglang, url, **options)
    assert driver.open(store=engine.run.store, lineage="run", threads=1)["version"] == 0
    engine.expect(0)
    return driver


def test_an_update_over_http_is_staged_then_pauses(sglang, run):
    engine = Engine(run, sglang)
    with server(engine) as (url, log):
        driver = opened(sglang, engine, url)
        assert paths(log) == ["open", "/update_weight_version"]
        assert log[-1][1] == {"new_version": "0", "abort_all_requests": False}
        run.publish()
        log.clear()
        assert driver.update()["version"] == 2
        engine.expect(2)
        assert paths(log) == ["prepare", "/pause_generation", "apply", "/continue_generation"]
        assert engine.manager.version == "2" and engine.log[-1] == ("flush", True)
        run.publish()
        driver.update(3, label="step 3")
        assert engine.manager.version == "step 3"
        assert driver.status()["version"] == 3


def test_a_refusal_before_the_first_byte_lets_the_engine_go_on(sglang, run):
    from segue.adapters import sglang_http
    engine = Engine(run, sglang)
    with server(engine) as (url, log):
        driver = opened(sglang, engine, url)
        run.publish()
        log.clear()
        original, engine.handle = engine.handle, lambda request: (
            stubs.UpdateWeightsFromTensorReqOutput(success=False, message="segue: no gate")
            if request.weight_version else original(request))
        with pytest.raises(sglang_http.RefusedError, match="no gate"):
            driver.update()
        assert paths(log)[-2:] == ["apply", "/continue_generation"]
        engine.expect(0)
        engine.handle = original
        log.clear()
        with pytest.raises(sglang_http.RefusedError):
            driver.update(99)
        assert paths(log) == ["prepare"]


def test_case_E2_unflushed_caches_keep_the_engine_paused(sglang, run):
    from segue.adapters import sglang_http
    engine = Engine(run, sglang)
    with server(engine) as (url, log):
        driver = opened(sglang, engine, url)
        run.publish()
        log.clear()
        engine.manager.flushes = [False, False, True]
        with pytest.raises(sglang_http.NotFinishedError, match="not flushed"):
            driver.update(2)
        assert "/continue_generation" not in paths(log)
        with pytest.raises(sglang_http.NotFinishedError):
            driver.finish(2)
        driver.finish(2)
        assert paths(log)[-1] == "/continue_generation" and engine.manager.version == "2"
        engine.expect(2)


def test_case_E4_a_lost_answer_keeps_the_engine_paused_until_finish(sglang, run):
    from segue.adapters import sglang_http
    engine = Engine(run, sglang)
    with server(engine) as (url, log):
        driver = opened(sglang, engine, url)
        run.publish()
        log.clear()
        original, slow = engine.handle, threading.Event()

        def late(request):
            answer = original(request)
            if request.weight_version:
                slow.wait(10)
            return answer

        engine.handle = late
        impatient = control(sglang, url, timeout_s=0.5)
        with pytest.raises(sglang_http.NotFinishedError):
            impatient.update(2)
        slow.set()
        assert "/continue_generation" not in paths(log)
        driver.finish(2)
        engine.expect(2)
        assert paths(log)[-2:] == ["apply", "/continue_generation"]


def test_poisoned_weights_keep_the_engine_paused(sglang, run):
    engine = Engine(run, sglang)
    with server(engine) as (url, log):
        driver = opened(sglang, engine, url)
        run.publish()
        log.clear()
        original, engine.handle = engine.handle, lambda request: (
            stubs.UpdateWeightsFromTensorReqOutput(
                success=False, message="segue: TaintedError: half")
            if request.weight_version else original(request))
        with pytest.raises(TaintedError, match="stays paused"):
            driver.update()
        assert "/continue_generation" not in paths(log)


def test_a_server_without_the_plugin_is_told_apart(sglang, run):
    engine = Engine(run, sglang)
    path = "/update_weights_from_tensor"
    answers = {path: [(200, {"success": True, "message": "Success"}),
                      (400, {"success": False, "message": "must run between begin_weight_update"}),
                      (500, {})], "/pause_generation": [(403, {})]}
    with server(engine, answers) as (url, log):
        driver = control(sglang, url, token="secret")
        with pytest.raises(UnsupportedError, match="is segue installed beside it"):
            driver.status()
        with pytest.raises(UnavailableError, match="must run between"):
            driver.status()
        with pytest.raises(UnavailableError, match="500"):
            driver.status()
        driver.open(store=run.store, lineage="run")
        log.clear()
        with pytest.raises(UnavailableError, match="403"):
            driver.update()
        assert paths(log) == ["prepare", "/pause_generation"]
    with pytest.raises(UnavailableError, match="127.0.0.1"):
        control(sglang, url, timeout_s=1).status()


def test_ways_to_pause(sglang, run):
    engine = Engine(run, sglang)
    with server(engine) as (url, log):
        with pytest.raises(InvalidArgumentError, match="no mode"):
            control(sglang, url, mode="sleep")
        driver = opened(sglang, engine, url, mode="in_place")
        log.clear()
        with pytest.raises(UnsupportedError, match="paused in place"):
            driver.update(1)
        assert paths(log) == ["prepare", "/pause_generation", "/continue_generation"]
        driver.update(1, flush_cache=False)
        run.publish()
        driver.update(flush_cache=False)
        engine.expect(2)
        assert ("flush", True) not in engine.log
        assert log[-1] == ("/continue_generation", {})


def test_every_family_of_names_reaches_sglang_modules(sglang, tmp_path):
    """Derived tensors are attributes of modules, not parameters."""
    run = Run(tmp_path, "deepseek-sglang")
    run.publish()
    engine = Engine(run, sglang)
    engine.open()
    run.publish()
    engine.send(sglang.Command("update", 2))
    engine.expect(2)
    assert families.raw(engine.model.model.layers.get_submodule("0").self_attn.w_kc) == (
        families.raw(run.load(engine.engine, 2)["model.layers.0.self_attn.w_kc"]))
