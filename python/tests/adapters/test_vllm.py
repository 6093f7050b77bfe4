# SPDX-License-Identifier: Apache-2.0
"""The vLLM adapter on stubs that carry vLLM's signatures (test_engine_signatures.py)."""

import subprocess
import sys
import types

import model_families as families
import pytest
import engine_stubs as stubs
from engine_support import Run, Source, module_of
from http_support import serving

import segue
from segue import InvalidArgumentError, UnavailableError, UnsupportedError


@pytest.fixture
def vllm():
    with stubs.installed("vllm") as module:
        assert module.MISSING is None
        module.register()
        yield module


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path, "qwen3-moe")
    run.publish()
    return run


def config_of(run, **parallel):
    return types.SimpleNamespace(
        parallel_config=types.SimpleNamespace(**{
            "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1,
            "enable_expert_parallel": False, "enable_eplb": False, **parallel}),
        model_config=types.SimpleNamespace(model=str(run.directory)))


def opened(worker, run, **options):
    """Initialised, and brought to the newest version before there is traffic."""
    worker.init_weight_transfer_engine({"store": run.store, "lineage": "run", **options})
    worker.start_weight_update()
    worker.update_weights({})
    worker.finish_weight_update()
    return worker


def worker_of(run, **parallel):
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    engine = run.engine()
    lives = run.load(engine)
    worker = stubs.VllmWorker(config_of(run, **parallel), module_of(lives),
                              WeightTransferEngineFactory)
    worker.expect = lambda version: run.expect(lives, engine, version)
    return worker


def test_the_plugin_registers_once_however_often_it_is_called(vllm):
    from vllm.distributed.weight_transfer import factory
    vllm.register()
    assert factory.WeightTransferEngineFactory._registry == {
        "segue": ("segue.adapters.vllm", "SegueWeightTransferEngine")}
    assert factory.WeightTransferTrainerFactory._registry == {
        "segue": ("segue.adapters.vllm", "SegueTrainerWeightTransferEngine")}


def test_an_engine_takes_versions(vllm, run):
    worker = worker_of(run)
    worker.init_weight_transfer_engine({"store": run.store, "lineage": "run"})
    worker.expect(0)
    opened(worker, run)
    worker.expect(1)
    for version in (2, 3):
        run.publish()
        worker.start_weight_update()
        worker.update_weights({"action": "prepare", "version": version})
        worker.expect(version - 1)
        worker.update_weights({"action": "apply", "version": version})
        worker.finish_weight_update()
        worker.expect(version)
    run.publish()
    worker.start_weight_update()
    worker.update_weights({})
    worker.finish_weight_update()
    worker.expect(4)
    worker.weight_transfer_engine.shutdown()
    worker.expect(4)


def test_initialising_twice_changes_nothing_and_other_options_open_anew(vllm, run):
    worker = worker_of(run)
    info = {"store": run.store, "lineage": "run"}
    worker.init_weight_transfer_engine(info)
    first = worker.weight_transfer_engine._receiver
    worker.init_weight_transfer_engine(info)
    assert worker.weight_transfer_engine._receiver is first
    worker.init_weight_transfer_engine({**info, "threads": 1})
    assert worker.weight_transfer_engine._receiver is not first
    assert first.status()["state"] == "CLOSED"


def test_what_the_engine_cannot_do_is_refused(vllm, run):
    worker = worker_of(run)
    with pytest.raises(UnavailableError, match="has not been called"):
        worker.start_weight_update()
    with pytest.raises(ValueError, match="Invalid init_info"):
        worker.init_weight_transfer_engine({"shop": "x"})
    opened(worker, run)
    for info in ({"action": "load"}, {"version": -1}, {"version": "7"}, {"action": "apply"},
                 {"action": "abort"}, {"names": ["x"]}):
        worker.start_weight_update()
        with pytest.raises(ValueError):
            worker.update_weights(info)
    worker.start_weight_update()
    with pytest.raises(segue.Error):
        worker.update_weights({"version": 99})
    worker.expect(1)


@pytest.mark.parametrize("parallel,match", [
    ({"pipeline_parallel_size": 2}, "pipeline"),
    ({"enable_expert_parallel": True, "data_parallel_size": 2}, "data-parallel"),
    ({"enable_eplb": True}, "load balancer")])
def test_ways_to_run_in_parallel_that_are_not_known(vllm, run, parallel, match):
    worker = worker_of(run, **parallel)
    with pytest.raises(UnsupportedError, match=match):
        worker.init_weight_transfer_engine({"store": run.store, "lineage": "run"})


class Client:
    """vLLM's control plane, in this process, for any number of engines."""

    def __init__(self, workers):
        self.workers, self.log = workers, []

    def __getattr__(self, name):
        def call(*arguments):
            self.log.append((name, *arguments))
            for worker in self.workers:
                getattr(worker, name)(*(() if name == "finish_weight_update" else arguments))

        return call


def test_a_trainer_sends_weights(vllm, tmp_path):
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    run = Run(tmp_path, "qwen3-moe")
    run.publish()
    run.publisher.close()
    workers = [worker_of(run), worker_of(run)]
    # The trainer starts from what is the newest version.
    base = families.write_checkpoint(tmp_path / "trainer", run.versions[1], run.config)
    client, source = Client(workers), Source(families.changed(run.versions[1], 50))
    info = vllm.SegueTrainerInitInfo(store=run.store, lineage="run", base=str(base),
                                     engine={"threads": 1}, rank=0, publisher={"threads": 1})
    trainer = WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)
    paused = []
    trainer.staged = lambda version: paused.append(version)
    trainer.before_apply = lambda: paused.append([w.expect(0) for w in workers])
    trainer.after_apply = lambda: paused.append("on")
    trainer.send_weights()
    run.versions[2] = source.tensors
    for worker in workers:
        worker.expect(2)
    assert paused == [2, [None, None], "on"]
    assert [entry[0] for entry in client.log] == [
        "init_weight_transfer_engine", "start_weight_update", "update_weights", "update_weights",
        "finish_weight_update"]
    assert client.log[-1] == ("finish_weight_update", "2")
    other = vllm.SegueTrainerInitInfo(store=run.store, lineage="run", base="", rank=1)
    passive = WeightTransferTrainerFactory.trainer_init(other, client=None, source=source)
    passive.send_weights()
    assert source.passes == 2 and passive.publisher is None
    with pytest.raises(InvalidArgumentError, match="source"):
        WeightTransferTrainerFactory.trainer_init(other, client=None)


def test_older_trainers_publish_by_the_static_method(vllm, run):
    send = vllm.SegueWeightTransferEngine.trainer_send_weights
    after = families.changed(run.versions[1], 60)
    send(iter(after.items()), {"publisher": run.publisher})
    assert run.publisher.version == 2
    last = families.changed(after, 61)
    send(last.items(), {"store": run.store, "lineage": "run", "base": after, "step": 9})
    with pytest.raises(InvalidArgumentError, match="base"):
        send(iter(()), {"publisher": run.publisher, "base": "x"})
    worker = opened(worker_of(run), run)
    run.versions[9] = last
    worker.expect(9)


def test_a_trainer_that_fails_half_way_publishes_nothing(vllm, run):
    after = families.changed(run.versions[1], 60)

    def half():
        yield from list(after.items())[:5]
        raise RuntimeError("a rank is gone")

    with pytest.raises(RuntimeError, match="a rank is gone"):
        vllm.publish_one_by_one(run.publisher, half())
    with pytest.raises(InvalidArgumentError):
        vllm.publish_one_by_one(run.publisher, list(after.items())[:5])
    assert run.publisher.version == 1
    transposed = {n: t.t().contiguous().t() if t.dim() == 2 else t for n, t in after.items()}
    assert vllm.publish_one_by_one(run.publisher, transposed.items()) == 2


def test_the_worker_extension_does_the_same_by_rpc(vllm, run):
    worker = worker_of(run)

    class Worker(type(worker), vllm.WorkerExtension):
        """As vLLM adds the extension to the worker's bases."""

    for name in dir(vllm.WorkerExtension):
        assert name.startswith("__") or not hasattr(type(worker), name)
    worker.__class__ = Worker
    assert worker.segue_status() == {"state": "CLOSED", "ready": False}
    with pytest.raises(UnavailableError):
        worker.segue_update()
    status = worker.segue_open(store=run.store, lineage="run")
    assert status["version"] == 0 and worker.segue_open()["version"] == 0
    assert worker.segue_update()["version"] == 1
    run.publish()
    worker.segue_update(2, "prepare")
    while worker.segue_status()["state"] == "PREPARING":
        pass
    worker.expect(1)
    assert worker.segue_update(2, "apply")["version"] == 2
    worker.expect(2)
    worker.segue_close()
    assert worker.segue_status()["state"] == "CLOSED"
    worker.init_weight_transfer_engine({"store": run.store, "lineage": "run"})
    assert worker.segue_status()["version"] == 2


def test_without_vllm_the_module_says_what_is_missing():
    code = ("import sys; sys.modules['vllm'] = None\n"
            "from segue.adapters import vllm\n"
            "vllm.register()\n"
            "try:\n    vllm.SegueWeightTransferEngine(None, None, None, None)\n"
            "except Exception as error:\n    print(type(error).__name__, error)\n"
            "assert 'torch' not in sys.modules\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("UnsupportedError vLLM's weight transfer is not there")
    assert "WorkerExtension" in done.stdout

# --- over HTTP ---------------------------------------------------------------------------------


class Server:
    """vLLM's endpoints before workers with the extension. `log`: what was asked; `answers`: path or
    method -> what it says instead, once each."""

    def __init__(self, workers):
        self.workers, self.log, self.answers, self.version = workers, [], {}, "default"

    def __call__(self, path, body):
        name = body["method"] if path == "/collective_rpc" else path
        if path == "/collective_rpc" and "action" in body["kwargs"]:
            name = body["kwargs"]["action"]
        if name != "segue_status":
            self.log.append(name)
        if self.answers.get(name):
            return self.answers[name].pop(0)
        if path == "/update_weight_version":
            self.version = body["new_version"]
        if path != "/collective_rpc":
            return 200, {"success": True} if "prefix" in path else {}
        try:
            return 200, {"results": [getattr(worker, body["method"])(**body["kwargs"])
                                     for worker in self.workers]}
        except Exception as error:
            return 500, {"error": f"{type(error).__name__}"}


RESETS = ["/reset_prefix_cache?reset_running_requests=true&reset_external=true", "/reset_mm_cache",
          "/reset_encoder_cache"]


@pytest.fixture
def served(vllm, run):
    """(server, its control, a worker); the engine holds version 0."""
    from segue.adapters import vllm_http
    worker = worker_of(run)
    worker.__class__ = type("Worker", (type(worker), vllm.WorkerExtension), {})
    server = Server([worker])
    with serving(server) as url:
        driver = vllm_http.VLLMControl(url, timeout_s=20)
        assert driver.open(store=run.store, lineage="run", threads=1)["version"] == 0
        assert server.log == ["segue_open", "/update_weight_version"] and server.version == "0"
        server.log.clear()
        yield server, driver, worker
    sys.modules.pop("segue.adapters.vllm_http", None)


def test_an_update_over_http_is_staged_then_pauses(served):
    server, driver, worker = served
    assert driver.update()["version"] == 1
    worker.expect(1)
    assert server.log == ["prepare", "/pause?mode=keep&clear_cache=false", "apply", *RESETS,
                          "/update_weight_version", "/resume"]
    assert server.version == "1"


def test_case_E2_caches_that_are_not_reset_keep_the_engine_paused(served):
    from segue.adapters import vllm_http
    server, driver, worker = served
    server.answers[RESETS[0]] = [(200, {"success": False}), (500, {})]
    for call in (driver.update, lambda: driver.finish(1)):
        with pytest.raises(vllm_http.NotFinishedError, match="stays paused"):
            call()
        assert "/resume" not in server.log
    driver.finish(1)
    assert server.log[-1] == "/resume" and server.version == "1"
    worker.expect(1)


def test_a_failure_before_the_first_byte_lets_the_engine_go_on(served, run):
    from segue.adapters import vllm_http
    server, driver, worker = served
    server.answers["apply"] = [(500, {"error": "out of luck"})]
    with pytest.raises(vllm_http.RefusedError, match="version 0 is held"):
        driver.update()
    assert server.log[-2:] == ["apply", "/resume"]
    worker.expect(0)
    with pytest.raises(segue.UnavailableError):
        driver.update(99)
    assert driver.update()["version"] == 1


def test_case_E4_a_lost_answer_keeps_the_engine_paused_until_finish(served):
    from segue.adapters import vllm_http
    server, driver, worker = served
    original = worker.segue_update

    def lost(**arguments):
        original(**arguments)
        if arguments["action"] == "apply":
            raise ConnectionError("the answer is lost")
        return original(version=arguments["version"], action="prepare")

    worker.segue_update = lost
    with pytest.raises(vllm_http.NotFinishedError):
        driver.update()
    assert server.log[-1] == "apply"
    worker.segue_update = original
    driver.finish(1)
    assert server.log[-1] == "/resume"
    worker.expect(1)


def test_poisoned_weights_and_workers_that_are_silent(served):
    from segue.adapters import vllm_http
    server, driver, worker = served
    worker.segue_status = lambda: {"state": "POISONED", "ready": False, "message": "half"}
    server.answers["apply"] = [(500, {})]
    server.answers["prepare"] = [(200, {"results": [{"target": 1, "state": "PREPARED"}]})] * 2
    with pytest.raises(segue.TaintedError, match="stays paused"):
        driver.update()
    assert server.log[-1] == "apply"
    server.answers["apply"] = [(500, {})]
    server.answers["segue_status"] = [(500, {})]
    with pytest.raises(vllm_http.NotFinishedError):
        driver.update()


def test_what_control_refuses(served):
    from segue.adapters import vllm_http
    server, driver, _ = served
    server.answers["prepare"] = [(200, {"results": [None]})]
    with pytest.raises(UnsupportedError, match="--worker-extension-cls"):
        driver.update()
    with pytest.raises(InvalidArgumentError, match="no caches"):
        vllm_http.VLLMControl("http://x", caches=["kv", "l2"])
    with pytest.raises(InvalidArgumentError, match="no mode"):
        vllm_http.VLLMControl("http://x", mode="retract")
