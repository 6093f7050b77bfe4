# SPDX-License-Identifier: Apache-2.0
"""Callbacks: whatever they raise, call or let go of, in whichever thread, is an exception of a call
or of nobody; never the end of the process, a state for ever, or a wait for itself."""

import gc
import os
import signal
import threading
import time
import weakref

import numpy as np
import pytest

import segue
from python_support import bound, copy_of, same_bytes
from test_lifecycle import SETUP, run_script
from test_open_close import published

DEADLINE = 30


class NoText(Exception):
    def __str__(self):
        raise ValueError("no text")


class OddCode(segue.Error):
    code = 7


class WorseCode(segue.Error):
    code = property(lambda self: 1 / 0)


HOSTILE = [NoText(), RuntimeError("cannot open \udcff"), OddCode("x"), WorseCode("x"),
           RuntimeError("a\0b"), segue.TaintedError("of other weights")]


def nothing(*_):
    return None


def callables(where, call):
    """All gate and hook callables, of which `where` is `call`."""
    made = dict.fromkeys(("close", "open", "pause", "set_version", "resume"), nothing)
    made["flush"] = lambda: []
    made[where] = call
    return {"close_gate": made["close"], "open_gate": made["open"],
            "hooks": segue.engine_hooks(pause=made["pause"], resume=made["resume"],
                                        flush=made["flush"], set_version=made["set_version"])}


def follow_to_the_first(receiver):
    """Follows until version 1 is held."""
    receiver.follow(0.001)
    limit = time.monotonic() + DEADLINE
    while receiver.status.version != 1:
        assert time.monotonic() < limit
        time.sleep(0.005)


@pytest.mark.parametrize("error", HOSTILE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["close", "open", "pause", "flush", "set_version", "resume"])
def test_what_a_callback_raises_is_the_cause_and_leads_on(tmp_path, where, error):
    store, model, before = published(tmp_path)
    raising = []

    def boom(*_):
        if raising:
            raise error
        return []

    receiver = bound(store, before, **callables(where, boom)).open()
    raising.append(True)
    with pytest.raises(segue.Error) as caught:
        receiver.update()
    assert caught.value.__cause__ is error
    assert not isinstance(caught.value, segue.TaintedError)
    assert receiver.status.state in ("FAILED", "APPLIED", "ABORTED")
    raising.clear()
    receiver.update()
    assert receiver.status.ready and same_bytes(before, model)
    receiver.close()


def test_a_follower_survives_what_callbacks_raise(tmp_path):
    store, model, before = published(tmp_path)
    left = list(HOSTILE)

    def close_gate(_):
        if left:
            raise left.pop()

    receiver = bound(store, before, close_gate=close_gate, open_gate=nothing)
    follow_to_the_first(receiver)
    receiver.close()
    assert not left and same_bytes(before, model)


@pytest.mark.parametrize("call", ["close()", "follow(0.5)", "update()", "status"])
def test_a_followers_callback_calls_its_receiver(tmp_path, call):
    """What would wait for its own thread is refused, and the update goes on."""
    store, model, before = published(tmp_path)
    answers = []

    def close_gate(_):
        try:
            answers.append(eval("receiver." + call, {"receiver": receiver}))
        except segue.Error as error:
            answers.append(str(error))

    receiver = bound(store, before, close_gate=close_gate, open_gate=nothing)
    follow_to_the_first(receiver)
    receiver.close()
    assert same_bytes(before, model) and len(answers) == 1
    assert {"close()": "own calls or callbacks", "follow(0.5)": "own threads",
            "update()": "in progress", "status": "APPLYING"}[call] in str(answers[0])


@pytest.mark.parametrize("call", ["abort", "wait_prepared", "close"])
def test_a_prepares_callback_calls_its_receiver(tmp_path, call):
    store, model, before = published(tmp_path)
    refused = []

    def sum_over_ranks(_):
        if threading.current_thread() is not threading.main_thread():
            try:
                getattr(receiver, call)()
            except segue.InvalidArgumentError as error:
                refused.append(str(error))

    receiver = bound(store, before, ranks=2, sum_over_ranks=sum_over_ranks)
    receiver.open()
    receiver.prepare()
    receiver.wait_prepared()
    receiver.apply()
    receiver.resume()
    receiver.close()
    assert same_bytes(before, model) and refused
    assert "wait for itself" in refused[0] or "own calls or callbacks" in refused[0]


def test_a_callback_of_a_callback_cannot_close_the_first_receiver(tmp_path):
    store, model, before = published(tmp_path)
    refused = []

    def close_first(_):
        try:
            first.close()
        except segue.InvalidArgumentError as error:
            refused.append(str(error))

    other = copy_of(before)
    second = bound(store, other, close_gate=close_first, open_gate=nothing).open()
    first = bound(store, before, close_gate=lambda _: second.update(), open_gate=nothing)
    first.update()
    assert len(refused) == 1 and same_bytes(before, model) and same_bytes(other, model)
    first.close()
    second.close()


def test_the_last_reference_goes_in_a_thread_of_its_own(tmp_path):
    assert "survived" in run_script(SETUP + """
    import gc
    gc.disable()
    ran = threading.Event()
    def close_gate(_):
        gc.collect()
        ran.set()
    step(model, 1); publisher.publish(model)
    receiver = bound(sys.argv[1] + "/store", live, close_gate=close_gate, open_gate=lambda: None)
    receiver.itself = receiver
    receiver.open()
    threads = len(os.listdir("/proc/self/task"))
    receiver.follow(0.2)
    del receiver
    assert ran.wait(30)
    while len(os.listdir("/proc/self/task")) > threads: time.sleep(0.01)
    assert same_bytes(live, model)
    print("survived")
    """, tmp_path)


def test_owners_whose_methods_are_callbacks_are_collected(tmp_path):
    store, model, before = published(tmp_path)

    class Owner:
        def __init__(self, kind):
            self.weights = copy_of(before)
            self.calls = []
            if kind == "gate":
                options = {"close_gate": self.call, "open_gate": self.call}
            else:
                options = {"hooks": segue.engine_hooks(pause=self.call, resume=self.call,
                                                       flush=lambda: [])}
            self.receiver = bound(store, self.weights, **options)
            self.receiver.update()
            self.receiver.follow(0.01)

        def call(self, *_):
            self.calls.append(_)

    for kind in ("gate", "hooks"):
        owner = Owner(kind)
        assert same_bytes(owner.weights, model)
        gone = weakref.ref(owner)
        gc.collect()
        assert gone() is not None and owner.receiver.status.ready
        del owner
        limit = time.monotonic() + DEADLINE
        while gone() is not None:
            assert time.monotonic() < limit
            gc.collect()


def test_a_cycle_that_is_collected_lets_its_engine_go_on(tmp_path):
    store, _, before = published(tmp_path)
    told = []
    lock = threading.Lock()

    class Owner:
        def __init__(self):
            hooks = segue.engine_hooks(pause=self.tell, resume=self.resume, flush=lambda: [])
            self.receiver = bound(store, before, hooks=hooks).open()
            self.receiver.prepare(session="s")
            self.receiver.wait_prepared()
            self.receiver.apply("s")
            told.clear()

        def tell(self, *_):
            pass

        def resume(self):
            with lock:
                told.append("resume")

    owner = Owner()
    assert owner.receiver.status.state == "APPLIED"
    with lock:
        del owner
        gc.collect()  # Ends nothing under whatever is held here.
    limit = time.monotonic() + DEADLINE
    while told != ["resume"]:
        assert time.monotonic() < limit
        time.sleep(0.001)


def test_hooks_that_receivers_share_keep_their_exceptions_apart(tmp_path):
    store, _, before = published(tmp_path)
    raised = {}

    def pause(*_):
        if armed:
            raised[threading.get_ident()] = error = OSError(str(threading.get_ident()))
            together.wait(DEADLINE)
            raise error

    armed, together = [], threading.Barrier(4)
    hooks = segue.engine_hooks(pause=pause, resume=nothing, flush=lambda: [])
    receivers = [bound(store, copy_of(before), hooks=hooks).open() for _ in range(4)]
    armed.append(True)
    causes = {}

    def update(receiver):
        try:
            receiver.update()
        except segue.Error as error:
            causes[threading.get_ident()] = error.__cause__

    threads = [threading.Thread(target=update, args=(one,)) for one in receivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(causes) == 4 and all(causes[ident] is raised[ident] for ident in causes)


def test_a_signal_handler_asks_for_the_status_that_is_being_asked(tmp_path):
    assert "survived" in run_script(SETUP + """
    receiver = bound(sys.argv[1] + "/store", live).open()
    heard = []
    signal.signal(signal.SIGALRM, lambda *_: heard.append(receiver.status.state))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    end = time.monotonic() + 2
    while time.monotonic() < end: receiver.status
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert len(heard) > 100 and set(heard) == {"IDLE"}
    print("survived")
    """, tmp_path)


@pytest.mark.parametrize("kind", ["BaseException", "TimeoutError"])
def test_what_a_signal_handler_raises_during_status_is_not_lost(tmp_path, kind):
    assert "lost 0" in run_script(SETUP + f"""
    class Alarm({kind}): pass
    sent = heard = 0
    def on_alarm(*_):
        global sent
        sent += 1
        raise Alarm()
    receiver = bound(sys.argv[1] + "/store", live).open()
    signal.signal(signal.SIGALRM, on_alarm)
    while sent < 200:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005)
            for _ in range(500): receiver.status
            time.sleep(0.01)
        except Alarm:
            heard += 1
    print("lost", sent - heard)
    """, tmp_path)


def test_an_interrupt_is_not_hidden_by_a_later_error(tmp_path):
    store, _, before = published(tmp_path)

    def resume():
        if armed:
            raise ValueError("later")

    def close_gate(_):
        if armed:
            raise KeyboardInterrupt

    armed = []
    hooks = segue.engine_hooks(pause=nothing, resume=resume, flush=lambda: [])
    receiver = bound(store, before, close_gate=close_gate, open_gate=nothing, hooks=hooks).open()
    armed.append(True)
    with pytest.raises(KeyboardInterrupt):
        receiver.update()
    armed.clear()
    receiver.close()


def test_one_step_object_in_several_threads_is_inside_once(tmp_path):
    store, _, before = published(tmp_path)
    receiver = bound(store, before, gate_timeout=1).open()
    shared = receiver.step(timeout=DEADLINE)
    receiver.prepare(session="s")
    receiver.wait_prepared()
    receiver.apply("s")
    outcomes = []

    def enter():
        try:
            shared.__enter__()
            outcomes.append("inside")
        except segue.InvalidArgumentError:
            outcomes.append("refused")

    threads = [threading.Thread(target=enter) for _ in range(3)]
    for thread in threads:
        thread.start()
    limit = time.monotonic() + DEADLINE
    while len(outcomes) < 2:
        assert time.monotonic() < limit
        time.sleep(0.001)
    receiver.resume("s")
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["inside", "refused", "refused"]
    shared.__exit__(None, None, None)
    receiver.update()
    receiver.close()


def test_a_step_says_how_long_it_waited(tmp_path):
    store, _, before = published(tmp_path)
    receiver = bound(store, before).open()
    receiver.prepare(session="s")
    receiver.wait_prepared()
    receiver.apply("s")
    with pytest.raises(segue.UnavailableError, match="after 250 ms"), receiver.step(timeout=0.25):
        pass
    receiver.close()


def test_a_child_that_unwinds_out_of_a_step_leaves_its_parent_inside(tmp_path):
    from safetensors.numpy import save_file
    (tmp_path / "base").mkdir()
    model = {"w": np.arange(64, dtype=np.float32)}
    save_file(model, tmp_path / "base" / "model.safetensors")
    publisher = segue.Publisher(tmp_path / "store", base=tmp_path / "base")
    name = f"segue-test-fork-{time.monotonic_ns()}"
    receiver = segue.Receiver(tmp_path / "store", checkpoint=tmp_path / "base", name=name,
                              gate_timeout=0.3).open()
    try:
        weights = segue.attach(name)
        model["w"][3] = 7
        publisher.publish(model)
        for make in (weights.step, lambda: segue.step_all(weights)):
            one = make()
            one.__enter__()
            child = os.fork()
            if child == 0:
                one.__exit__(None, None, None)
                with weights.step():  # Of its own.
                    pass
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            with pytest.raises(segue.UnavailableError):
                receiver.update()
            one.__exit__(None, None, None)
        receiver.update()
    finally:
        receiver.close()
        segue.remove_segment(name)


def test_a_publisher_tells_its_version_while_another_thread_uses_it(tmp_path):
    store, model, _ = published(tmp_path)
    publisher = segue.Publisher(store, base=model)

    def wait():
        with pytest.raises(segue.UnavailableError):
            publisher.wait_for(["http://127.0.0.1:9"], timeout=1.5)

    waiting = threading.Thread(target=wait)
    waiting.start()
    asked = 0
    while waiting.is_alive():
        assert publisher.version == 1 and publisher.baseline_bytes > 0
        asked += 1
        time.sleep(0.001)
    waiting.join()
    assert asked > 100
    publisher.close()
    with pytest.raises(segue.InvalidArgumentError, match="closed"):
        assert publisher.version


def test_put_reads_an_export_that_owns_its_memory(tmp_path):
    """An array library's export may be a copy that the capsule alone owns."""
    model = {"w": np.random.default_rng(1).standard_normal((1024, 1024)).astype(np.float32)}
    publisher = segue.Publisher(tmp_path / "store", base=model)
    live = copy_of(model)
    model["w"][5, 7] = 3

    class Export:
        def __dlpack_device__(self):
            return (1, 0)

        def __init__(self):
            self.last = lambda: None

        def __dlpack__(self, **_):
            copied = self.last()
            if copied is None:
                copied = model["w"].copy()
            self.last = weakref.ref(copied)
            return copied.__dlpack__()

    publisher.begin()
    publisher.put("w", Export())
    assert publisher.commit().changed_elements == 1
    receiver = bound(tmp_path / "store", live)
    receiver.update()
    assert same_bytes(live, model)
