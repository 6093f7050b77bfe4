# SPDX-License-Identifier: Apache-2.0
"""Cases from the field (docs/design.md, "Cases") through Python: C1, C2, C4, D2, E2, E4, E7, E9."""

import contextlib
import resource
import signal
import threading

import numpy as np
import pytest

import segue
from python_support import bound, copy_of, make_model, same_bytes, step


def flip(array, at=0):
    """Changes one bit of one element."""
    array.reshape(-1).view(np.uint8)[at] ^= 1


# --- C1: tied weights -----------------------------------------------------------------------------


@pytest.fixture
def tied(tmp_path):
    """A store whose two tensors are equal, and one live buffer for both."""
    weight = np.arange(4096, dtype=np.float32).reshape(64, 64)
    trained = {"embed_tokens.weight": weight, "lm_head.weight": weight.copy()}
    live = weight.copy()
    publisher = segue.Publisher(tmp_path / "store", base=trained)
    receiver = bound(tmp_path / "store", dict.fromkeys(trained, live)).open()
    yield trained, live, publisher, receiver
    receiver.close()


def test_case_c1_equal_deltas_are_applied_once(tied):
    trained, live, publisher, receiver = tied
    for array in trained.values():
        flip(array, 40)
    publisher.publish(trained)
    assert receiver.update().changed_elements == 2
    assert live.tobytes() == trained["lm_head.weight"].tobytes()


@pytest.mark.parametrize("changed", [["embed_tokens.weight"], ["lm_head.weight"]])
def test_case_c1_unequal_deltas_are_refused(tied, changed):
    trained, live, publisher, receiver = tied
    before = live.copy()
    for name in changed:
        flip(trained[name])
    publisher.publish(trained)
    with pytest.raises(segue.InvalidArgumentError, match="embed_tokens.*lm_head|lm_head.*embed"):
        receiver.update()
    assert live.tobytes() == before.tobytes()
    assert receiver.status.version == 0 and receiver.status.ready


def test_case_c1_partly_the_same_memory(tmp_path):
    trained = {name: np.zeros((4, 8), np.float32) for name in ("q", "k", "qkv")}
    segue.Publisher(tmp_path / "store", base=trained).publish(trained)
    memory = np.zeros((12, 8), np.float32)
    receiver = bound(tmp_path / "store", {"q": memory[:4], "k": memory[4:8], "qkv": memory[2:6]})
    with pytest.raises(segue.InvalidArgumentError, match="qkv"):
        receiver.open()


# --- C2: the engine's layout is not the checkpoint's ----------------------------------------------


@pytest.fixture
def matrix(tmp_path):
    """A store with one matrix at version 1, and its base."""
    base = np.arange(96 * 64, dtype=np.uint16).reshape(96, 64)
    trained = {"w": base.copy()}
    publisher = segue.Publisher(tmp_path / "store", base=trained)
    flip(trained["w"], 1000)
    publisher.publish(trained)
    return tmp_path / "store", base, trained["w"]


@pytest.mark.parametrize("layout", [
    lambda w: w.T.copy().reshape(w.shape),
    lambda w: w[::-1].copy(),
    lambda w: np.roll(w, 1, axis=1),
])
def test_case_c2_another_layout_is_refused(matrix, layout):
    store, base, _ = matrix
    live = layout(base)
    before = live.copy()
    with pytest.raises(segue.VersionMismatchError, match="no version"):
        bound(store, {"w": live}).open()
    assert live.tobytes() == before.tobytes()


def test_case_c2_a_padded_buffer_is_refused_without_a_view(matrix):
    store, base, _ = matrix
    padded = np.zeros((96, 80), np.uint16)
    padded[:, :64] = base
    receiver = segue.Receiver(store)
    receiver.bind("w", padded, shape=(96, 64))
    with pytest.raises(segue.InvalidArgumentError, match="'w'"):
        receiver.open()


VIEWS = {
    "transposed": (lambda w: w.T.copy(), [segue.transposed_view(96, 64, 2)]),
    "padded": (lambda w: np.pad(w, ((0, 0), (0, 16))),
               [segue.row_slice(64, 0, 96, 2, row_stride=160)]),
    "two parts": (lambda w: np.concatenate([w[48:], w[:48]]),
                  [segue.row_slice(64, 0, 48, 2, target_offset=48 * 128),
                   segue.row_slice(64, 48, 48, 2)]),
    "columns": (lambda w: np.concatenate([w[:, 32:].ravel(), w[:, :32].ravel()]),
                [segue.column_slice(96, 64, 0, 32, 2, target_offset=96 * 64),
                 segue.column_slice(96, 64, 32, 32, 2)]),
    "axes": (lambda w: w.copy(), [segue.View(axes=[(96, 64, 128), (64, 1, 2)])]),
    "box": (lambda w: w.T.copy(), [segue.box_view((96, 64), (0, 0), (96, 64), (2, 192))]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_case_c2_views_say_where_elements_lie(matrix, name):
    store, base, newest = matrix
    layout, views = VIEWS[name]
    live = layout(base)
    receiver = segue.Receiver(store)
    for view in views:
        receiver.bind("w", live, view, dtype="U16", shape=(96, 64))
    assert receiver.update().target_version == 1
    assert live.tobytes() == layout(newest).tobytes()
    receiver.close()


# --- C4: another dtype or shape than the checkpoint's ---------------------------------------------


@pytest.mark.parametrize("old, new, message", [
    ((np.float16, (4, 8)), (np.float32, (4, 8)), r"F32 \[4, 8\].*F16 \[4, 8\]"),
    ((np.float16, (4, 8)), (np.int16, (4, 8)), r"I16 \[4, 8\].*F16 \[4, 8\]"),
    ((np.float16, (4, 8)), (np.float16, (8, 4)), r"F16 \[8, 4\].*F16 \[4, 8\]"),
    ((np.float16, (1519, 2)), (np.float16, (1520, 2)), r"F16 \[1520, 2\].*F16 \[1519, 2\]"),
    ((np.float32, ()), (np.float32, (1,)), r"F32 \[1\].*F32 \[\]"),
    ((np.float32, (1,)), (np.float32, ()), r"F32 \[\].*F32 \[1\]"),
    ((np.uint8, (4, 8)), (np.float16, (4, 8)), r"F16 \[4, 8\].*U8 \[4, 8\]"),
])
def test_case_c4_another_dtype_or_shape(tmp_path, old, new, message):
    other = np.zeros(3, np.float32)
    live = {"w": np.zeros(old[1], old[0]), "x": other.copy()}
    publisher = segue.Publisher(tmp_path / "store", base=live)
    receiver = bound(tmp_path / "store", live).open()
    with pytest.raises(segue.InvalidArgumentError, match="tensor 'w' is " + message):
        publisher.publish({"w": np.zeros(new[1], new[0]), "x": other + 1})
    assert receiver.versions() == [] and publisher.version is None
    publisher.publish({"w": np.zeros(old[1], old[0]), "x": other + 1})
    assert receiver.update().target_version == 1
    receiver.close()


# --- D2: the baseline moves with durable versions alone -------------------------------------------


class FullDisk:
    """Files can be no larger than some bytes."""

    def __init__(self, size):
        self.size = size

    def __enter__(self):
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)
        signal.signal(signal.SIGXFSZ, self.handler)


def test_case_d2_failed_upload_leaves_the_baseline(tmp_path):
    model = make_model()
    live = copy_of(model)
    publisher = segue.Publisher(tmp_path / "store", base=model)
    with bound(tmp_path / "store", live).open() as receiver:
        step(model, 1)
        publisher.publish(model)
        receiver.update()
        step(model, 2)
        with FullDisk(200), pytest.raises(segue.Error) as raised:
            publisher.publish(model)
        assert not isinstance(raised.value, segue.TaintedError)
        assert publisher.version == 1 and receiver.versions() == [1]
        step(model, 3)  # What the step before changed is not lost.
        report = publisher.publish(model)
        assert (report.base_version, report.target_version) == (1, 2)
        receiver.update()
        assert same_bytes(live, model)


def test_case_d2_receiver_that_missed_a_version_catches_up(tmp_path):
    model = make_model()
    quick, slow = copy_of(model), copy_of(model)
    publisher = segue.Publisher(tmp_path / "store", base=model)
    with bound(tmp_path / "store", quick).open() as a, bound(tmp_path / "store", slow).open() as b:
        for number in (1, 2, 3):
            step(model, number)
            publisher.publish(model)
            a.update()
            if number == 2:
                with pytest.raises(segue.VersionMismatchError, match="version 0 is held, not"):
                    b.prepare(base=1)
                assert b.status.version == 0
        assert b.update().steps == 3
        assert same_bytes(quick, model) and same_bytes(slow, model)


# --- E2: hooks of an engine that runs requests ----------------------------------------------------


class FakeEngine:
    """Holds requests; writes down what is asked of it; fails where it is told to."""

    def __init__(self):
        self.calls, self.fails, self.paused, self.label = [], {}, False, None
        self.pause_with = None

    def _asked(self, name):
        self.calls.append(name)
        if self.fails.get(name, 0) > 0:
            self.fails[name] -= 1
            raise segue.UnavailableError(f"{name}: 8 requests run, 3 are queued")

    def pause(self, abort_requests, flush_cache):
        if self.pause_with:
            self.pause_with(abort_requests, flush_cache)
        assert (abort_requests, flush_cache) == (False, True)
        self._asked("pause")
        self.paused = True

    def flush(self):
        self._asked("flush")
        return ["kv", "mm"]

    def set_version(self, label):
        self._asked("set_version")
        self.label = label

    def resume(self):
        self._asked("resume")
        self.paused = False

    def hooks(self):
        return segue.engine_hooks(pause=self.pause, flush=self.flush, resume=self.resume,
                                  set_version=self.set_version)


@pytest.fixture
def controlled(tmp_path):
    """A receiver with an engine's hooks, at version 0 of a lineage with version 1."""
    class Run:
        model = make_model()
        live = copy_of(model)
        before = copy_of(model)
        engine = FakeEngine()
        publisher = segue.Publisher(tmp_path / "store", base=model)
        receiver = bound(tmp_path / "store", live, hooks=engine.hooks())
    run = Run()
    run.receiver.open()
    step(run.model, 1)
    run.publisher.publish(run.model)
    assert not run.engine.paused
    run.engine.calls.clear()
    yield run
    run.receiver.close()


def test_case_e2_order_of_the_hooks(controlled):
    report = controlled.receiver.update()
    assert controlled.engine.calls == ["pause", "flush", "set_version", "resume"]
    assert controlled.engine.label == "default/1"
    assert report.flushed_caches == ["kv", "mm"]
    assert same_bytes(controlled.live, controlled.model)


def test_case_e2_pause_refuses(controlled):
    controlled.engine.fails = {"pause": 1}
    with pytest.raises(segue.UnavailableError, match="8 requests run") as raised:
        controlled.receiver.update()
    assert isinstance(raised.value.__cause__, segue.UnavailableError)
    assert controlled.engine.calls == ["pause", "resume"]
    assert same_bytes(controlled.live, controlled.before)
    status = controlled.receiver.status
    assert status.version == 0 and status.ready
    assert controlled.receiver.update().target_version == 1


def test_case_e2_flush_refuses_twice(controlled):
    controlled.engine.fails = {"flush": 2}
    for _ in range(2):
        with pytest.raises(segue.UnavailableError, match="applied, but the caches stay"):
            controlled.receiver.update()
        assert controlled.receiver.status.state == "APPLIED" and controlled.engine.paused
    controlled.receiver.update()
    assert controlled.engine.calls[:6] == ["pause", "flush", "flush", "flush", "set_version",
                                           "resume"]
    assert "flush" not in controlled.engine.calls[6:]
    assert not controlled.engine.paused and controlled.receiver.status.applied_count == 1
    assert same_bytes(controlled.live, controlled.model)


def test_case_e2_resume_fails(controlled):
    controlled.engine.fails = {"resume": 1}
    with pytest.raises(segue.UnavailableError, match="resume: 8 requests"):
        controlled.receiver.update()
    assert controlled.engine.paused and controlled.receiver.status.version == 1
    controlled.receiver.update()
    assert not controlled.engine.paused and controlled.receiver.status.applied_count == 1


def test_case_e2_what_a_hook_raises(controlled):
    class Interrupted(BaseException):
        """Not an Exception, as KeyboardInterrupt."""

    for error, expected in ((ValueError("no"), segue.InternalError), (Interrupted(), Interrupted),
                            (ConnectionError("no"), segue.UnavailableError)):
        def pause(*_, error=error):
            raise error
        controlled.engine.pause_with = pause
        with pytest.raises(expected) as raised:
            controlled.receiver.update()
        assert error in (raised.value, raised.value.__cause__)
        assert same_bytes(controlled.live, controlled.before)
    controlled.engine.pause_with = None
    assert controlled.receiver.update().target_version == 1


# --- E4: who asks again while an update runs ------------------------------------------------------


def test_case_e4_retry_while_an_apply_runs(tmp_path):
    model = make_model()
    live = copy_of(model)
    publisher = segue.Publisher(tmp_path / "store", base=model)
    inside, go_on = threading.Event(), threading.Event()

    def close_gate(seconds):
        assert seconds == 60
        inside.set()
        assert go_on.wait(60)

    receiver = bound(tmp_path / "store", live, gate_timeout=60, close_gate=close_gate,
                     open_gate=lambda: None).open()
    step(model, 1)
    publisher.publish(model)
    outcome = []
    worker = threading.Thread(target=lambda: outcome.append(receiver.update(to=1)))
    worker.start()
    assert inside.wait(60)
    status = receiver.status  # Answers while the apply waits.
    assert status.state == "APPLYING" and status.version == 0
    with pytest.raises(segue.UnavailableError, match="an update is in progress"):
        receiver.update(to=1)
    go_on.set()
    worker.join()
    assert outcome[0].target_version == 1
    again = receiver.update(to=1)  # Already there: nothing is applied twice.
    assert receiver.status.applied_count == 1 and again.target_version == 1
    assert same_bytes(live, model)
    receiver.close()


@contextlib.contextmanager
def inside_in_a_thread(receiver):
    """A thread is inside a step meanwhile."""
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with receiver.step():
            entered.set()
            leave.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait()
    yield
    leave.set()
    thread.join()


def test_case_e4_waits_end_by_rule(tmp_path):
    model = make_model()
    live, before = copy_of(model), copy_of(model)
    publisher = segue.Publisher(tmp_path / "store", base=model)
    receiver = bound(tmp_path / "store", live, gate_timeout=0.05).open()
    step(model, 1)
    publisher.publish(model)
    with inside_in_a_thread(receiver):
        with pytest.raises(segue.UnavailableError, match="1 step was still inside"):
            receiver.update()
        assert receiver.status.state == "ABORTED" and receiver.status.ready
        assert same_bytes(live, before)
    receiver.prepare(session="s")
    receiver.wait_prepared()
    receiver.apply("s")
    with pytest.raises(segue.UnavailableError, match="still closed"):
        with receiver.step(timeout=0.05):
            raise AssertionError("the gate is closed")
    receiver.resume("s")
    with receiver.step(timeout=0):
        assert same_bytes(live, model)
    receiver.close()


# --- E7: an engine that starts from the base ------------------------------------------------------


def test_case_e7_version_is_what_is_held(tmp_path):
    model = make_model()
    base = copy_of(model)
    publisher = segue.Publisher(tmp_path / "store", base=model)
    for number in range(1, 8):
        step(model, number)
        publisher.publish(model)
    seen = []
    receiver = bound(tmp_path / "store", base, open_gate=lambda: None,
                     close_gate=lambda _: seen.append(receiver.status))
    assert receiver.open().status.version == 0
    update = receiver.update()
    assert (update.base_version, update.target_version, update.steps) == (0, 7, 7)
    assert [status.version for status in seen] == [0] and seen[0].target_version in (0, 7)
    assert receiver.status.version == 7 and receiver.status.ready
    assert same_bytes(base, model)
    receiver.close()


# --- E9: another model's weights ------------------------------------------------------------------


def test_case_e9_another_model(tmp_path):
    ours = make_model()
    before = copy_of(ours)
    larger = {name: np.zeros((2, *array.shape), array.dtype) for name, array in ours.items()}
    segue.Publisher(tmp_path / "larger", base=larger).publish(larger)
    with pytest.raises(segue.InvalidArgumentError, match="embed.weight"):
        bound(tmp_path / "larger", ours).open()
    other = make_model(seed=2)
    segue.Publisher(tmp_path / "other", base=other).publish(other)
    with pytest.raises(segue.VersionMismatchError, match="no version"):
        bound(tmp_path / "other", ours).open()
    assert same_bytes(ours, before)
