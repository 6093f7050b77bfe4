# SPDX-License-Identifier: Apache-2.0
"""Opening and closing from several threads, from callbacks, and at the end of the interpreter: the
same memory never has two cores, and what is closed is."""

import threading
import time

import numpy as np
import pytest

import segue
from python_support import bound, copy_of, make_model, same_bytes, step
from test_lifecycle import SETUP, run_script

THREADS = 6


def published(tmp_path):
    """(store, model at version 1, what version 0 was)."""
    model = make_model()
    before = copy_of(model)
    publisher = segue.Publisher(tmp_path / "store", base=model)
    step(model, 1)
    publisher.publish(model)
    return tmp_path / "store", model, before


def at_once(count, call):
    """Runs call(i) in `count` threads that begin together."""
    barrier = threading.Barrier(count)
    failures = []

    def work(i):
        barrier.wait()
        try:
            call(i)
        except segue.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def group_of(store, live, **options):
    return segue.ReceiverGroup([bound(store, live, **options)])


@pytest.mark.parametrize("make", [bound, group_of])
def test_threads_that_open_at_once_share_one_gate(tmp_path, make):
    store, _, before = published(tmp_path)
    receiver = make(store, before, gate_timeout=0.2)
    steps = [None] * THREADS

    def take(i):
        steps[i] = receiver.step()

    at_once(THREADS, take)
    for one in steps:
        with one, pytest.raises(segue.InvalidArgumentError, match="inside a step"):
            receiver.update()
    receiver.close()


def stops_while_it_opens(store, tensors):
    """A receiver whose open() says that it has come to the engine, and waits there."""
    opened, go_on = threading.Event(), threading.Event()

    def pause(*_):
        opened.set()
        go_on.wait()

    hooks = segue.engine_hooks(pause=pause, resume=lambda: None, flush=lambda: [])
    return bound(store, tensors, hooks=hooks), opened, go_on


def test_open_waits_for_a_bind_and_refuses_later_ones(tmp_path):
    store, _, before = published(tmp_path)
    receiver, opened, go_on = stops_while_it_opens(store, before)
    opener = threading.Thread(target=receiver.open)
    opener.start()
    opened.wait()
    refused = []

    def bind():
        try:
            receiver.bind("late", np.zeros(4, np.float32))
        except segue.InvalidArgumentError as error:
            refused.append(str(error))

    binder = threading.Thread(target=bind)
    binder.start()
    time.sleep(0.05)
    assert not refused  # It waits.
    go_on.set()
    opener.join()
    binder.join()
    assert refused == ["bind() comes before open(), and before a group"]
    receiver.close()


def test_close_waits_for_an_open_of_another_thread(tmp_path):
    store, model, before = published(tmp_path)
    receiver, opened, go_on = stops_while_it_opens(store, before)

    def follow():
        try:
            receiver.follow(0.001)
        except segue.InvalidArgumentError:
            pass

    opener = threading.Thread(target=follow)
    opener.start()
    opened.wait()
    closer = threading.Thread(target=receiver.close)
    closer.start()
    closer.join(0.1)
    assert closer.is_alive()
    go_on.set()
    opener.join()
    closer.join()
    at_close = copy_of(before)
    time.sleep(0.1)
    assert same_bytes(before, at_close)
    with pytest.raises(segue.InvalidArgumentError, match="is closed"):
        receiver.update()
    assert model.keys() == before.keys()


@pytest.mark.parametrize("call", ["open", "close", "status", "step"])
def test_calls_from_inside_open_are_refused(tmp_path, call):
    store, _, before = published(tmp_path)

    def pause(*_):
        found = getattr(receiver, call)
        return found() if callable(found) else found

    hooks = segue.engine_hooks(pause=pause, resume=lambda: None, flush=lambda: [])
    receiver = bound(store, before, hooks=hooks)
    with pytest.raises(segue.InvalidArgumentError, match="inside its own open"):
        receiver.open()
    with pytest.raises(segue.InvalidArgumentError, match="inside its own open"):
        receiver.update()  # Not closed, and not open either.
    receiver.close()


def test_a_close_that_is_refused_leaves_it_open(tmp_path):
    store, model, before = published(tmp_path)
    refused = []

    def close_gate(_):
        try:
            receiver.close()
        except segue.InvalidArgumentError as error:
            refused.append(str(error))

    receiver = bound(store, before, close_gate=close_gate, open_gate=lambda: None)
    receiver.update()
    assert len(refused) == 1 and "inside one of its own calls" in refused[0]
    assert same_bytes(before, model) and receiver.status.ready
    receiver.close()
    with pytest.raises(segue.InvalidArgumentError, match="closed"):
        receiver.update()


def test_close_finishes_what_is_applied(tmp_path):
    store, model, before = published(tmp_path)
    told = []
    hooks = segue.engine_hooks(pause=lambda *_: told.append("pause"), flush=lambda: [],
                               resume=lambda: told.append("resume"))
    receiver = bound(store, before, hooks=hooks).open()
    receiver.prepare(session="s")
    receiver.wait_prepared()
    receiver.apply("s")
    told.clear()
    with_step = receiver.step(timeout=30)
    entered = threading.Event()

    def enter():
        with with_step:
            entered.set()

    waiting = threading.Thread(target=enter)
    waiting.start()
    assert not entered.wait(0.05)
    receiver.close()
    assert entered.wait(10) and told == ["resume"]
    waiting.join()
    assert same_bytes(before, model)


def test_close_opens_the_gate_of_a_segment(tmp_path):
    np_model = {"w": np.arange(64, dtype=np.float32)}
    from safetensors.numpy import save_file
    (tmp_path / "base").mkdir()
    save_file(np_model, tmp_path / "base" / "model.safetensors")
    publisher = segue.Publisher(tmp_path / "store", base=tmp_path / "base")
    name = f"segue-test-close-{time.monotonic_ns()}"
    receiver = segue.Receiver(tmp_path / "store", checkpoint=tmp_path / "base", name=name).open()
    try:
        weights = segue.attach(name)
        np_model["w"][3] = 7
        publisher.publish(np_model)
        receiver.prepare(session="s")
        receiver.wait_prepared()
        receiver.apply("s")
        receiver.close()
        with weights.step(timeout=5) as one:
            assert one.version == 1
    finally:
        segue.remove_segment(name)


def test_what_the_engine_cannot_be_told_at_the_end_is_raised(tmp_path):
    store, _, before = published(tmp_path)
    broken = []

    def resume():
        if broken:
            raise OSError("the engine is gone")

    hooks = segue.engine_hooks(pause=lambda *_: None, flush=lambda: [], resume=resume)
    receiver = bound(store, before, hooks=hooks).open()
    receiver.prepare(session="s")
    receiver.wait_prepared()
    receiver.apply("s")
    broken.append(True)
    with pytest.raises(segue.UnavailableError, match="the engine is gone"):
        receiver.close()
    receiver.close()  # It is closed.
    with pytest.raises(segue.InvalidArgumentError, match="closed"):
        receiver.update()


def test_a_child_forked_while_another_thread_opens_closes_it(tmp_path):
    assert "closed in the child" in run_script(SETUP + """
    opened, go_on = threading.Event(), threading.Event()
    def pause(*_):
        opened.set()
        go_on.wait()
    hooks = segue.engine_hooks(pause=pause, resume=lambda: None, flush=lambda: [])
    receiver = bound(sys.argv[1] + "/store", live, hooks=hooks)
    opener = threading.Thread(target=receiver.open)
    opener.start()
    opened.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        receiver.close()
        print("closed in the child", flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    go_on.set()
    opener.join()
    receiver.close()
    """, tmp_path)


def test_two_threads_close(tmp_path):
    store, _, before = published(tmp_path)
    receiver = bound(store, before).open()
    receiver.follow(0.001)
    at_once(THREADS, lambda _: receiver.close())
    with pytest.raises(segue.InvalidArgumentError, match="closed"):
        receiver.follow()


def test_sessions_of_callers_are_left_alone_by_update(tmp_path):
    """However they are called."""
    store, _, before = published(tmp_path)
    receiver = bound(store, before)
    receiver.open()
    for number in range(50):
        receiver.prepare(session=f"update-{number}")
        receiver.wait_prepared()
        with pytest.raises(segue.UnavailableError, match=f"update-{number}'"):
            receiver.update()
        receiver.abort(f"update-{number}")
    receiver.prepare(session="update-7")
    receiver.wait_prepared()
    receiver.apply("update-7")
    with pytest.raises(segue.UnavailableError):
        receiver.update()
    assert receiver.status.state == "APPLIED"
    receiver.close()


def test_the_interpreter_ends_though_one_cannot_be_closed_well(tmp_path):
    assert "main ends" in run_script(SETUP + r"""
    step(model, 1); publisher.publish(model)
    def boom(*_): raise RuntimeError("x \udcff")
    bad = [bound(sys.argv[1] + "/store", copy_of(before), close_gate=boom, open_gate=boom)
           for _ in range(3)]
    good = bound(sys.argv[1] + "/store", live); good.follow(0.001)
    for one in bad:
        try: one.update()
        except segue.Error: pass
    def in_a_thread():
        try: bad[0].update()
        except segue.Error: pass
    thread = threading.Thread(target=in_a_thread); thread.start(); thread.join()
    class Owner:
        def resume(self): raise OSError("gone")
    hooks = segue.engine_hooks(pause=lambda *_: None, flush=lambda: [], resume=Owner().resume)
    held = bound(sys.argv[1] + "/store", before, hooks=segue.engine_hooks(
        pause=lambda *_: None, flush=lambda: [], resume=lambda: 1 / broken)); broken = 1
    held.open(); held.prepare(session="s"); held.wait_prepared(); held.apply("s"); broken = 0
    print("main ends")
    """, tmp_path)


def test_it_is_imported_in_the_main_interpreter_alone(tmp_path):
    interpreters = pytest.importorskip("_xxsubinterpreters")
    assert interpreters
    assert "refused\n1" in run_script(SETUP + """
    import _xxsubinterpreters as interpreters
    other = interpreters.create()
    interpreters.run_string(other, chr(10).join([
        f"import sys; sys.path[:0] = {sys.path!r}",
        "try: import segue",
        "except ImportError as error: assert 'main interpreter' in str(error), error",
        "else: raise SystemExit('imported')"]))
    interpreters.destroy(other)
    print("refused")
    step(model, 1); publisher.publish(model)
    receiver = bound(sys.argv[1] + "/store", live)
    receiver.update()
    print(receiver.status.version)
    """, tmp_path)
