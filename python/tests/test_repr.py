# SPDX-License-Identifier: Apache-2.0
"""What publishers, receivers, groups and attached weights say of themselves in a debugger or a log:
whose weights they are, at which version, in which state. Saying it opens nothing, asks no store and
never raises, whatever has become of them."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import segue
from python_support import bound, copy_of, make_model, step
from segue.views import row_slice


@pytest.fixture
def run(tmp_path):
    """(publisher, tensors at version 0, store); version 1 is there."""
    model = make_model()
    old = copy_of(model)
    publisher = segue.Publisher(tmp_path / "store", lineage="run7", base=model)
    step(model, 1)
    publisher.publish(model)
    return publisher, old, tmp_path / "store"


def test_a_publisher_tells_its_baseline(run, tmp_path):
    publisher, old, store = run
    size = publisher.baseline_bytes
    whose = f"<segue.Publisher of lineage 'run7' in '{store}', "
    assert repr(publisher) == whose + f"baseline of {size} bytes, version 1>"
    publisher.close()
    assert repr(publisher) == whose + "closed>"
    fresh = segue.Publisher(tmp_path / "other", base=old)
    assert repr(fresh).endswith("bytes, of no version yet>")


def test_a_receiver_tells_where_it_stands(run):
    _, live, store = run
    whose = f"<segue.Receiver of lineage 'run7' in '{store}', "
    assert repr(segue.Receiver(store, lineage="run7")) == whose + "0 tensors, not open>"
    receiver = bound(store, live, lineage="run7")
    assert repr(receiver) == whose + "6 tensors, not open>"
    receiver.open()
    assert repr(receiver) == whose + "6 tensors, at version 0, IDLE>"
    receiver.prepare(1)
    receiver.wait_prepared()
    assert repr(receiver) == whose + "6 tensors, at version 0, PREPARED>"
    receiver.apply()
    assert repr(receiver).endswith("at version 1, APPLIED, not ready>")
    receiver.resume()
    receiver.close()
    assert repr(receiver) == whose + "0 tensors, closed>"
    with pytest.raises(segue.InvalidArgumentError):
        receiver.open()
    assert repr(receiver).endswith("closed>")


def test_parts_of_one_tensor_count_once(tmp_path):
    receiver = segue.Receiver(tmp_path)
    for rank in (0, 1):
        receiver.bind("w", np.zeros((2, 4), np.float32), row_slice(4, rank * 2, 2, 4), dtype="F32",
                      shape=(4, 4))
    assert "1 tensor, not open" in repr(receiver)


def test_a_receiver_that_is_not_ready_says_so(tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    with bound(store, make_model()).open() as receiver:
        assert repr(receiver).endswith("at version 0, IDLE, not ready>")


def test_a_group_tells_of_each_lineage(run, tmp_path):
    _, live, store = run
    draft = copy_of(live)
    segue.Publisher(store, lineage="draft", base=draft).publish(draft)
    receivers = [bound(store, live, lineage="run7"), bound(store, draft, lineage="draft")]
    group = segue.ReceiverGroup(receivers)
    assert repr(group) == "<segue.ReceiverGroup of lineages 'run7', 'draft', not open>"
    assert repr(receivers[0]).endswith("6 tensors, in a group, not open>")
    group.open()
    group.update({"run7": 1})
    told = repr(group)
    assert "'run7' at version 1, RESUMED; 'draft' at version" in told
    group.close()
    assert repr(group) == "<segue.ReceiverGroup of lineages 'run7', 'draft', closed>"


def test_attached_weights_tell_their_version(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    model = make_model()
    checkpoint = tmp_path / "base"
    checkpoint.mkdir()
    numpy.save_file(model, checkpoint / "model.safetensors")
    segue.Publisher(tmp_path / "store", base=checkpoint).publish(model)
    name = f"py-repr-{os.getpid()}"
    receiver = segue.Receiver(tmp_path / "store", name=name, checkpoint=checkpoint).open()
    try:
        assert f"segment '{name}', at version 1" in repr(receiver)
        weights = segue.attach(name)
        whose = "<segue.Weights of lineage 'default', 6 tensors, at version 1"
        assert repr(weights) == whose + ">"
        receiver.close()
        assert repr(weights).startswith(whose)
    finally:
        receiver.close()
        segue.remove_segment(name)
    assert repr(weights).startswith(whose)


def test_what_could_not_be_made_tells_that(tmp_path):
    for kind in (segue.Publisher, segue.Receiver, segue.ReceiverGroup):
        assert "not open>" in repr(kind.__new__(kind))


def test_a_forked_child_may_ask(run):
    publisher, live, store = run
    script = textwrap.dedent("""
        import os, sys
        import segue
        from python_support import bound, make_model
        model = make_model()
        publisher = segue.Publisher(sys.argv[1], lineage="mine", base=model)
        receiver = bound(sys.argv[1], model, lineage="mine").open()
        child = os.fork()
        if child == 0:
            good = all("cannot be asked (InvalidArgumentError)>" in repr(one)
                       for one in (publisher, receiver))
            os._exit(0 if good else 1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    here = os.path.dirname(__file__)
    done = subprocess.run([sys.executable, "-c", script, str(store)], timeout=60, check=False,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(
                              [here, os.environ.get("PYTHONPATH", "")])})
    assert done.returncode == 0
