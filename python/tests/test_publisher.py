# SPDX-License-Identifier: Apache-2.0
"""What a publisher does for those who use it in ways that are not the tutorial's: tensors written
to meanwhile, the same step again, modules, options of a wrong kind, interrupts."""

import _thread
import os
import signal
import threading
import time

import numpy as np
import pytest

import segue
from python_support import bound, copy_of, make_model, same_bytes, step

torch = None
try:
    import torch
except ImportError:
    pass
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")

ELEMENTS = 1 << 21


def versions_of(store):
    """Numbers of the versions in a directory store."""
    folder = os.path.join(store, "default", "versions")
    return sorted(int(name[:10]) for name in os.listdir(folder) if name.endswith(".json")) \
        if os.path.isdir(folder) else []


class Writer:
    """Changes a tensor all the time, in a thread, until it is left."""

    def __init__(self, write):
        self._write, self._stop = write, False
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop:
            self._write()

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._stop = True
        self._thread.join()


def publish_until_refused(publisher, tensors, store):
    """Publishes until one is refused; how many were made before."""
    made = 0
    for _ in range(300):
        try:
            publisher.publish(tensors)
            made += 1
        except segue.InvalidArgumentError as error:
            assert "was written to" in str(error)
            assert versions_of(store) == list(range(1, made + 1))
            assert publisher.version == (made or None)
            return made
    raise AssertionError("300 versions and none was refused")


def check_lineage(publisher, tensors, start, store, made):
    """After quiet has come the next version is made, and an engine comes to it from the base."""
    assert publisher.publish(tensors).target_version == made + 1
    with bound(store, start) as receiver:
        assert receiver.update().target_version == made + 1
    assert all(np.array_equal(start[name], np.asarray(tensors[name])) for name in start)


def test_a_numpy_array_that_is_written_to(tmp_path):
    weights = {"w": np.zeros(ELEMENTS, np.uint16)}
    start = copy_of(weights)
    random = np.random.default_rng(1)

    def write():
        weights["w"][random.integers(0, ELEMENTS, 20000)] += 1

    with segue.Publisher(tmp_path, base=weights) as publisher:
        with Writer(write):
            made = publish_until_refused(publisher, weights, tmp_path)
        check_lineage(publisher, weights, start, tmp_path, made)


@needs_torch
def test_a_torch_tensor_that_is_written_to(tmp_path):
    weights = {"w": torch.zeros(ELEMENTS, dtype=torch.int16)}
    start = {"w": np.zeros(ELEMENTS, np.int16)}
    random = torch.Generator().manual_seed(1)

    def write():
        weights["w"][torch.randint(0, ELEMENTS, (20000,), generator=random)] += 1

    with segue.Publisher(tmp_path, base=weights) as publisher:
        with Writer(write):
            made = publish_until_refused(publisher, weights, tmp_path)
        check_lineage(publisher, weights, start, tmp_path, made)


@needs_torch
@pytest.mark.parametrize("change", [
    lambda tensor: tensor.add_(1),
    lambda tensor: setattr(tensor, "data", torch.ones(10)),
], ids=["written", "replaced"])
@pytest.mark.parametrize("how", ["publish", "put_all", "put"])
def test_what_torch_counts_is_noticed_wherever_it_was(tmp_path, how, change):
    """A write that begins and ends between the comparison of two tensors: every byte is consistent,
    and the version would be a mix of two steps."""
    weights = {"a": torch.zeros(10), "b": torch.zeros(10)}
    with segue.Publisher(tmp_path, base=weights) as publisher:
        core = publisher._core

        class Meanwhile:
            """The compiled part, with a write right after it has compared."""
            def __getattr__(self, name):
                return getattr(core, name)

            def put_all(self, sources):
                core.put_all(sources)
                change(weights["b"])

            def put(self, source):
                core.put(source)
                change(weights["b"])

        publisher._core = Meanwhile()
        with pytest.raises(segue.InvalidArgumentError, match="tensor 'b' was written to"):
            if how == "publish":
                publisher.publish(weights)
            else:
                publisher.begin()
                publisher.put_all(weights) if how == "put_all" else publisher.put("b", weights["b"])
        assert versions_of(tmp_path) == []
        publisher._core = core
        with pytest.raises(segue.InvalidArgumentError, match="no version is begun"):
            publisher.commit()
        weights["a"] += 1
        assert publisher.publish(weights).target_version == 1


def test_the_same_step_again(tmp_path):
    """A retry whose first try got through: here, from its base, and from its own checkpoint."""
    base = make_model()
    model = copy_of(base)
    step(model, 1)
    with segue.Publisher(tmp_path, base=base) as publisher:
        first = publisher.publish(model, step=5)
        again = publisher.publish(model, step=5)
        assert again.already_published and again.committed and not first.already_published
        assert (again.base_version, again.target_version) == (first.base_version, 5)
        assert (again.base_digest, again.target_digest) == (first.base_digest, first.target_digest)
        assert again.published_bytes == 0
        assert publisher.version == 5
    for bytes_then in (base, model):
        with segue.Publisher(tmp_path, base=bytes_then) as publisher:
            assert publisher.publish(model, step=5).already_published
            assert publisher.version == 5
    with segue.Publisher(tmp_path, base=model) as publisher:
        step(model, 2)
        with pytest.raises(segue.InvalidArgumentError, match="exists with other content"):
            publisher.publish(model, step=5)
        assert publisher.publish(model, step=6).base_version == 5
        with pytest.raises(segue.InvalidArgumentError, match="comes before .* at, 6"):
            publisher.publish(model, step=5)
    assert versions_of(tmp_path) == [5, 6]


def test_ctrl_c_in_a_publish_and_again(tmp_path, request):
    """The call ends first; whether the version is there, the same call says."""
    # A program that was started in the background may ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    model = {"w": np.zeros(1 << 25, np.uint8)}
    with segue.Publisher(tmp_path, base=model) as publisher:
        model["w"][::3] = 1
        timer = threading.Timer(0.02, _thread.interrupt_main)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            publisher.publish(model, step=1)
            time.sleep(5)
        timer.join()
        publisher.publish(model, step=1)
        assert versions_of(tmp_path) == [1] and publisher.version == 1
        model["w"][:] = 2
        assert publisher.publish(model, step=2).base_version == 1


@needs_torch
def test_modules(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    with segue.Publisher(tmp_path, base=module) as publisher:
        with torch.no_grad():
            module[0].weight += 1
        assert publisher.publish(module).changed_elements == 12
        module.load_state_dict({name: tensor + 1 for name, tensor in module.state_dict().items()},
                               assign=True)
        assert publisher.publish(module).changed_elements == 33
        publisher.begin()
        publisher.put_all(module)
        assert publisher.commit().changed_elements == 0
        with pytest.raises(segue.InvalidArgumentError, match="not a SGD|there was"):
            publisher.publish(torch.optim.SGD(module.parameters(), lr=0.1))


@pytest.mark.parametrize("options, message", [
    ({"retain": -1}, "retain is a whole number, at least 0, not -1"),
    ({"retain": "3"}, "retain is a whole number, at least 0, not '3'"),
    ({"retain": 1.5}, "retain is a whole number"),
    ({"retain": True}, "retain is a whole number"),
    ({"threads": -1}, "threads is a whole number"),
    ({"threads": 2**40}, "threads is at most"),
    ({"owners": 0}, "owners is a whole number, at least 1, not 0"),
    ({"owner": None}, "owner is a whole number"),
    ({"owner_timeout": -1}, "owner_timeout is a number of seconds, 0 or more, not -1"),
    ({"owner_timeout": float("nan")}, "owner_timeout is a number of seconds"),
    ({"owner_timeout": "1"}, "owner_timeout is a number of seconds"),
    ({"cohort": ["http://a"], "cohort_timeout": -2}, "cohort_timeout is a number of seconds"),
    ({"chunk_size": 0}, "chunk_size is a whole number, at least 1"),
    ({"shard_size": "big"}, "shard_size is a whole number"),
    ({"lineage": None}, "lineage is a string, not None"),
    ({"lineage": "\ud800"}, "lineage is a string that UTF-8 can write"),
    ({"session": 3}, "session is a string"),
    ({"token": b"t"}, "token is a string"),
    ({"branch": 1}, "branch is True or False, not 1"),
    ({"missing_is_unchanged": "no"}, "missing_is_unchanged is True or False"),
    ({"cohort": "http://127.0.0.1:7803"}, "cohort is a list, not 'http"),
    ({"cohort": 7}, "cohort is a list"),
    ({"anchors": "base"}, "anchors is a list, not 'base'"),
    ({"anchors": [7]}, "each of anchors is a name, or a pair"),
    ({"anchors": [("eval", -1)]}, "the version of anchor 'eval' is a whole number"),
    ({"public_keys": "/tmp/k.pem"}, "public_keys is a list"),
    ({"sign_key": 3}, "sign_key is a path"),
    ({"owned": "ab"}, "owned is a list"),
    ({"device": 0}, "device is a string"),
    ({"store": 7}, "store is a path or URL, not 7"),
    ({"base": {}}, "the base has no tensor"),
    ({"base": iter(())}, "the base has no tensor"),
    ({"base": 7}, "tensors are a mapping or pairs"),
    ({"base": {"__metadata__": np.zeros(1)}}, "tensor '__metadata__': safetensors"),
    ({"base": {"a\ud800": np.zeros(1)}}, "name is text"),
])
def test_options_of_a_wrong_kind(tmp_path, options, message):
    options = {"store": tmp_path / "store", "base": {"w": np.zeros(3)}, **options}
    with pytest.raises(segue.InvalidArgumentError, match=message):
        segue.Publisher(options.pop("store"), **options)
    assert not os.path.exists(tmp_path / "store" / "default")


def test_steps_and_tensors_of_a_wrong_kind(tmp_path):
    model = {"w": np.zeros(3)}
    with segue.Publisher(tmp_path, base=model, missing_is_unchanged=True) as publisher:
        for wrong in (-1, "x", 1.5, True, 2**70):
            with pytest.raises(segue.InvalidArgumentError, match="^step is "):
                publisher.publish(model, step=wrong)
            with pytest.raises(segue.InvalidArgumentError, match="^step is "):
                publisher.begin(wrong)
        with pytest.raises(segue.InvalidArgumentError, match="iterator was used before"):
            publisher.publish(iter(()))
        with pytest.raises(segue.InvalidArgumentError, match="engines is a list"):
            publisher.wait_for("http://a")
        with pytest.raises(segue.InvalidArgumentError, match="timeout is a number of seconds"):
            publisher.wait_for(["http://a"], -1)
        with pytest.raises(segue.InvalidArgumentError, match="'w.2' is none of those"):
            publisher.publish({"w.2": model["w"]})
        assert publisher.publish({}).changed_elements == 0


def test_messages_speak_of_python(tmp_path):
    model = make_model()
    base = copy_of(model)
    with segue.Publisher(tmp_path, base=model) as publisher:
        step(model, 1)
        publisher.publish(model)
        with pytest.raises(segue.InvalidArgumentError, match="was not put: put it.*put_unchanged"):
            publisher.publish({name: array for name, array in model.items() if name != "scale"})
    with segue.Publisher(tmp_path, base=base) as publisher:
        step(base, 2)
        with pytest.raises(segue.InvalidArgumentError, match="in Python branch=True"):
            publisher.publish(base)
    with pytest.raises(segue.InvalidArgumentError, match="in Python session"):
        with segue.Publisher(tmp_path, base=model, owners=2) as publisher:
            publisher.begin(2)
