# SPDX-License-Identifier: Apache-2.0
"""Processes and threads: fork, Ctrl-C, the end of the interpreter, callbacks from other threads,
and what keeps what alive. What may hang runs in a process of its own, with a deadline."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import numpy as np
import pytest

import segue
from python_support import bound, copy_of, make_model, same_bytes, step

DEADLINE = 60
HERE = os.path.dirname(__file__)


def run_script(text, store, **options):
    """Runs a script in a process of its own; `sys.argv[1]` is a directory. Its output."""
    # Below a shell's background job SIGINT is ignored, which children inherit.
    script = ("import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
              f"sys.path.insert(0, {HERE!r})\n" + textwrap.dedent(text))
    done = subprocess.run([sys.executable, "-c", script, str(store)], capture_output=True,
                          text=True, timeout=DEADLINE, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


SETUP = """
    import os, signal, threading, time
    import segue
    from python_support import bound, copy_of, make_model, same_bytes, step
    model = make_model(); live = copy_of(model); before = copy_of(model)
    publisher = segue.Publisher(sys.argv[1] + "/store", base=model)
"""


def test_the_interpreter_ends_under_a_follower(tmp_path):
    assert "end" in run_script(SETUP + """
    receiver = bound(sys.argv[1] + "/store", live).open()
    receiver.follow(0.001)
    for number in range(1, 20):
        step(model, number)
        publisher.publish(model)
    while receiver.status.version < 19: time.sleep(0.001)
    assert same_bytes(live, model)
    print("end")
    """, tmp_path)


def test_the_interpreter_ends_under_a_daemon_that_updates(tmp_path):
    assert "end" in run_script(SETUP + """
    receiver = bound(sys.argv[1] + "/store", live).open()
    step(model, 1)
    publisher.publish(model)
    def update():
        while True: receiver.update()
    threading.Thread(target=update, daemon=True).start()
    time.sleep(0.1)
    print("end")
    """, tmp_path)


# A step that does not end, of a daemon or of the main thread itself.
STEPS = {
    "of a thread": """
    def hold():
        with receiver.step(): time.sleep(1000)
    threading.Thread(target=hold, daemon=True).start()
    """,
    "of the main thread": """
    inside = receiver.step()
    inside.__enter__()
    """,
}


@pytest.mark.parametrize("whose", STEPS)
@pytest.mark.parametrize("who", ["receiver.follow(0.01)",
                                 "threading.Thread(target=receiver.update, daemon=True).start()"])
def test_the_interpreter_ends_while_somebody_waits_at_the_gate(tmp_path, whose, who):
    assert "end" in run_script(SETUP + f"""
    receiver = bound(sys.argv[1] + "/store", live, gate_timeout=1000).open()
    {STEPS[whose]}
    time.sleep(0.1)
    step(model, 1)
    publisher.publish(model)
    {who}
    while receiver.status.state != "APPLYING": time.sleep(0.001)
    print("end")
    """, tmp_path)


def test_ctrl_c_ends_an_update_at_a_gate_that_does_not_close(tmp_path):
    started = time.monotonic()
    assert "interrupted" in run_script(SETUP + """
    receiver = bound(sys.argv[1] + "/store", live, gate_timeout=1000).open()
    done = threading.Event()
    def hold():
        with receiver.step(): done.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    step(model, 1)
    publisher.publish(model)
    while receiver.versions() != [1]: time.sleep(0.001)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        receiver.update()
    except KeyboardInterrupt:
        status = receiver.status
        assert status.state == "ABORTED" and status.ready and same_bytes(live, before), status
        with receiver.step(): print("interrupted")  # The gate is open.
    done.set()
    thread.join()
    receiver.update()
    assert same_bytes(live, model)
    """, tmp_path)
    assert time.monotonic() - started < 30


def test_close_lets_a_paused_engine_go_on(tmp_path):
    model = make_model()
    live, calls, works = copy_of(model), [], []
    publisher = segue.Publisher(tmp_path / "store", base=model)

    def flush():
        calls.append("flush")
        if not works:
            raise segue.UnavailableError("not now")
        return ["kv"]

    def receiver_of(live):
        return bound(tmp_path / "store", live,
                     hooks=segue.engine_hooks(pause=lambda *_: calls.append("pause"), flush=flush,
                                              resume=lambda: calls.append("resume")))
    works.append(1)
    receiver = receiver_of(live).open()
    for outcome in ("works", "fails"):
        step(model, len(calls))
        publisher.publish(model)
        works.clear()
        calls.clear()
        with pytest.raises(segue.UnavailableError, match="not now"):
            receiver.update()
        assert receiver.status.failure == "ok" and calls[-1] != "resume"
        if outcome == "works":
            works.append(1)
            receiver.close()
            assert calls[-1] == "resume"
            receiver = receiver_of(live).open()
        else:
            with pytest.raises(segue.UnavailableError, match="not now"):
                receiver.close()  # Said, and closed all the same.
            assert calls[-1] != "resume"
            with pytest.raises(segue.InvalidArgumentError, match="closed"):
                receiver.update()
    assert same_bytes(live, model)


def test_ctrl_c_ends_a_prepare(tmp_path):
    """The prepare waits for another rank, which does not come for a second."""
    assert "interrupted" in run_script(SETUP + """
    meetings = []
    def sum_over_ranks(words):
        meetings.append(len(words))
        if len(meetings) > 1:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(1)
    step(model, 1)
    publisher.publish(model)
    receiver = bound(sys.argv[1] + "/store", live, ranks=2, sum_over_ranks=sum_over_ranks).open()
    try:
        receiver.update()
    except KeyboardInterrupt:
        assert same_bytes(live, before)
        status = receiver.status
        assert status.state == "ABORTED" and status.version == 0 and status.ready
        print("interrupted")
    """, tmp_path)


@pytest.mark.parametrize("wait", ["segue.attach('nobody-is-there', timeout=1000)",
                                  "receiver.step(timeout=1000).__enter__()"])
def test_ctrl_c_ends_waits(tmp_path, wait):
    started = time.monotonic()
    assert "interrupted" in run_script(SETUP + f"""
    step(model, 1)
    publisher.publish(model)
    receiver = bound(sys.argv[1] + "/store", live).open()
    receiver.prepare(session="s")
    receiver.wait_prepared()
    receiver.apply("s")
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        {wait}
    except KeyboardInterrupt:
        print("interrupted")
    """, tmp_path)
    assert time.monotonic() - started < 30


def test_a_forked_child_can_neither_use_nor_end_them(tmp_path):
    assert "child refused\nparent goes on" in run_script(SETUP + """
    receiver = bound(sys.argv[1] + "/store", live).open()
    receiver.follow(0.01)
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (receiver.update, publisher.begin, lambda: receiver.status):
            try:
                call()
            except segue.InvalidArgumentError as error:
                assert "forked child" in str(error), error
                refused += 1
        print("child refused" if refused == 3 else "child did not refuse", flush=True)
        sys.exit(0)  # Ends the interpreter: closes what there is.
    assert os.waitpid(child, 0)[1] == 0
    step(model, 1)
    publisher.publish(model)
    while receiver.status.version < 1: time.sleep(0.001)
    assert same_bytes(live, model)
    print("parent goes on")
    """, tmp_path)


def test_neither_torch_nor_numpy_is_needed(tmp_path):
    assert "works" in run_script("""
    sys.modules["torch"] = sys.modules["numpy"] = sys.modules["ml_dtypes"] = None
    import array, segue
    base = {"a": array.array("f", range(100)), "b": bytearray(b"bytes"),
            "c": memoryview(bytearray(24)).cast("B").cast("H", (3, 4))}
    live = {"a": array.array("f", range(100)), "b": bytearray(b"bytes"),
            "c": memoryview(bytearray(24)).cast("B").cast("H", (3, 4))}
    publisher = segue.Publisher(sys.argv[1] + "/store", base=base)
    receiver = segue.Receiver(sys.argv[1] + "/store")
    for name, tensor in live.items():
        receiver.bind(name, tensor)
    base["a"][7] = -1.0
    base["b"][0] = 0
    base["c"][2, 3] = 99
    publisher.publish(base)
    receiver.update()
    assert live == base
    try:
        live["b"].append(1)
    except BufferError:
        print("works")  # What is bound cannot be resized.
    """, tmp_path)


def test_import_brings_in_neither_torch_nor_numpy(tmp_path):
    assert run_script("""
    import segue
    print([name for name in ("torch", "numpy", "ml_dtypes") if name in sys.modules])
    """, tmp_path).strip() == "[]"


def test_tensors_live_as_long_as_they_are_bound(tmp_path):
    model = make_model()
    publisher = segue.Publisher(tmp_path / "store", base=model)
    receiver = segue.Receiver(tmp_path / "store")
    for name, array in copy_of(model).items():
        receiver.bind(name, array)
    last = weakref.ref(array)
    del array
    gc.collect()
    receiver.open()
    step(model, 1)
    publisher.publish(model)
    receiver.update()
    assert last() is not None and last().tobytes() == model["scale"].tobytes()
    receiver.close()
    gc.collect()
    assert last() is None


def test_receiver_that_is_dropped_ends(tmp_path):
    model = make_model()
    segue.Publisher(tmp_path / "store", base=model).publish(model)
    receiver = bound(tmp_path / "store", copy_of(model)).open()
    receiver.follow(0.001)
    time.sleep(0.05)
    gone = weakref.ref(receiver)
    threads = threading_count()
    del receiver
    gc.collect()
    assert gone() is None and threading_count() < threads


def threading_count():
    return len(os.listdir("/proc/self/task"))


def test_close_from_inside_a_call_is_refused(tmp_path):
    model = make_model()
    live = copy_of(model)
    publisher = segue.Publisher(tmp_path / "store", base=model)
    receiver = bound(tmp_path / "store", live, close_gate=lambda _: receiver.close(),
                     open_gate=lambda: None).open()
    step(model, 1)
    publisher.publish(model)
    with pytest.raises(segue.InvalidArgumentError, match="inside one of its own calls"):
        receiver.update()
    receiver.close()


def test_other_threads_run_while_python_waits_in_a_call(tmp_path):
    model = {"w": np.zeros(64 << 20, np.uint8)}
    publisher = segue.Publisher(tmp_path / "store", base=model)
    counted = 0
    stop = threading.Event()

    def count():
        nonlocal counted
        while not stop.is_set():
            counted += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    for _ in range(5):
        model["w"] ^= 1
        publisher.publish(model)
    during = counted - before
    stop.set()
    thread.join()
    assert during > 10


def test_ranks_that_are_threads(tmp_path):
    model = {"w": np.arange(64 * 32, dtype=np.uint16).reshape(64, 32),
             "norm": np.ones(32, np.float32)}
    publisher = segue.Publisher(tmp_path / "store", base=model)
    publisher.publish(model)
    halves = [model["w"][:32].copy(), model["w"][32:].copy()]
    norms = [model["norm"].copy(), model["norm"].copy()]
    sums = segue.local_ranks(2, timeout=30)
    receivers = []
    for rank in range(2):
        receiver = segue.Receiver(tmp_path / "store", rank=rank, ranks=2, sum_over_ranks=sums[rank])
        receiver.bind("w", halves[rank], segue.row_slice(32, 32 * rank, 32, 2), shape=(64, 32))
        receiver.bind("norm", norms[rank], copy=rank, copies=2)
        receivers.append(receiver)
    model["w"] ^= 3
    model["norm"][5] = 2
    publisher.publish(model)
    reports = [None, None]

    def update(rank):
        reports[rank] = receivers[rank].update(to=2)

    threads = [threading.Thread(target=update, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.target_version for report in reports] == [2, 2]
    assert same_bytes({"w": np.concatenate(halves)}, {"w": model["w"]})
    assert all(norm.tobytes() == model["norm"].tobytes() for norm in norms)
    for receiver in receivers:
        receiver.close()


def test_callbacks_that_answer_nonsense(tmp_path):
    model = make_model()
    live = copy_of(model)
    publisher = segue.Publisher(tmp_path / "store", base=model)
    hooks = segue.engine_hooks(pause=lambda *_: None, resume=lambda: None, flush=lambda: 17)
    with pytest.raises(segue.InvalidArgumentError, match="the flush hook returned something else"):
        bound(tmp_path / "store", live, hooks=hooks).open()
    receiver = bound(tmp_path / "store", live, ranks=2,
                     sum_over_ranks=lambda words: words.extend(b"x"))
    step(model, 1)
    publisher.publish(model)
    with pytest.raises(segue.UnavailableError, match="changed the number of words"):
        receiver.open()
    assert not same_bytes(live, model)
    with pytest.raises(segue.InvalidArgumentError, match="'sglang' or 'vllm'|sglang|kind"):
        segue.http_hooks("other", "http://127.0.0.1:1")
    with pytest.raises(TypeError):
        segue.engine_hooks(pause=print)
