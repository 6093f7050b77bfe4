# SPDX-License-Identifier: Apache-2.0
"""What is refused: one clear exception that names the tensor, and nothing changed."""

import copy
import os
import pickle
import threading

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


@pytest.fixture
def run(tmp_path):
    """A model, its publisher with version 1, and live weights at version 1."""
    class Run:
        store = tmp_path / "store"
        model = make_model()
        live = copy_of(model)
        publisher = segue.Publisher(store, base=model)
        receiver = bound(store, live)

        def check_unchanged(self, version=1):
            assert self.publisher.version == version
            assert self.receiver.versions() == list(range(1, version + 1))
            assert self.receiver.status.version == version and self.receiver.status.ready
    made = Run()
    step(made.model, 1)
    made.publisher.publish(made.model)
    made.receiver.update()
    yield made
    made.receiver.close()
    made.publisher.close()


NAME = "layer.0.weight"
NUMPY_CHANGES = {
    "another dtype": (lambda a: a.view(np.int16), r"is I16 \[300, 200\], expected F16"),
    "another shape": (lambda a: a.reshape(200, 300), r"is F16 \[200, 300\], expected F16"),
    "not contiguous": (lambda a: a.T, "not contiguous"),
    "every second row": (lambda a: a[::2], "not contiguous"),
    "the same row again": (lambda a: np.broadcast_to(a[0], a.shape), "not contiguous"),
    "big endian": (lambda a: a.astype(">f2"), "little-endian"),
    "fewer rows": (lambda a: a[:10], r"is F16 \[10, 200\], expected F16"),
    "no tensor": (lambda a: 17, "is no tensor"),
    "none": (lambda a: None, "is no tensor"),
}


@pytest.mark.parametrize("case", NUMPY_CHANGES)
def test_publish_refuses_a_tensor(run, case):
    change, message = NUMPY_CHANGES[case]
    wrong = {**run.model, NAME: change(run.model[NAME])}
    with pytest.raises(segue.InvalidArgumentError, match=f"tensor '{NAME}'.*{message}"):
        run.publisher.publish(wrong)
    run.publisher.begin()
    with pytest.raises(segue.InvalidArgumentError, match=f"tensor '{NAME}'"):
        run.publisher.put(NAME, change(run.model[NAME]))
    run.publisher.discard()
    run.check_unchanged()
    step(run.model, 2)
    assert run.publisher.publish(run.model).target_version == 2


@needs_torch
@pytest.mark.parametrize("change, message", [
    (lambda t: t.to("meta"), "on device 'meta'"),
    (lambda t: t.t(), "not contiguous"),
    (lambda t: t.to_sparse(), "torch.sparse_coo"),
    (lambda t: t[0].expand(300, 200), "not contiguous"),
    (lambda t: t.to(torch.complex64).conj(), "bytes are not its values"),
    (lambda t: t.to(torch.bfloat16), "is BF16"),
])
def test_publish_refuses_a_torch_tensor(run, change, message):
    wrong = {**run.model, NAME: change(torch.from_numpy(run.model[NAME].copy()))}
    with pytest.raises(segue.InvalidArgumentError, match=f"tensor '{NAME}'.*{message}"):
        run.publisher.publish(wrong)
    run.check_unchanged()


@needs_torch
def test_publish_takes_what_requires_grad(run):
    parameter = torch.nn.Parameter(torch.from_numpy(run.model[NAME].copy()))
    assert parameter.requires_grad
    run.publisher.publish({**run.model, NAME: parameter})
    with pytest.raises(segue.InvalidArgumentError, match="it is a FakeTensor"):
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            run.publisher.publish({**run.model, NAME: torch.empty(300, 200)})


def test_publish_refuses_names(run):
    with pytest.raises(segue.InvalidArgumentError, match="'nobody' is none of those"):
        run.publisher.publish({**run.model, "nobody": run.model[NAME]})
    with pytest.raises(segue.InvalidArgumentError, match=f"'{NAME}' is put twice"):
        run.publisher.publish([*run.model.items(), (NAME, run.model[NAME])])
    missing = {name: array for name, array in run.model.items() if name != NAME}
    with pytest.raises(segue.InvalidArgumentError, match=f"'{NAME}' was not put") as raised:
        run.publisher.publish(missing)
    assert isinstance(raised.value, ValueError) and isinstance(raised.value, segue.Error)
    with pytest.raises(segue.InvalidArgumentError, match="pairs"):
        run.publisher.publish(run.model.values())
    with pytest.raises(segue.InvalidArgumentError, match="name is a string"):
        run.publisher.publish({7: run.model[NAME]})
    run.check_unchanged()


def test_wrong_owner(run, tmp_path):
    base = {name: array if index % 2 else segue.TensorSpec(*spec_of(array))
            for index, (name, array) in enumerate(run.model.items())}
    with pytest.raises(segue.InvalidArgumentError, match="no bytes"):
        segue.Publisher(run.store, base=base)
    with segue.Publisher(run.store, base=base, owner=0, owners=2, session="s") as publisher:
        publisher.begin(2)
        with pytest.raises(segue.InvalidArgumentError, match="belongs to another owner"):
            publisher.put("embed.weight", run.model["embed.weight"])
    run.check_unchanged()


def spec_of(array):
    names = {"float16": "F16", "float32": "F32", "float64": "F64", "uint8": "U8"}
    return names[array.dtype.name], array.shape


def test_a_version_in_the_middle_of_another(run):
    run.publisher.begin()
    with pytest.raises(segue.InvalidArgumentError, match="begun already"):
        run.publisher.publish(run.model)
    with pytest.raises(segue.InvalidArgumentError, match="begun already"):
        run.publisher.begin()
    run.publisher.discard()
    with pytest.raises(segue.InvalidArgumentError, match="no version is begun"):
        run.publisher.commit()
    run.check_unchanged()


def test_publishers_base_that_is_no_version(run):
    step(run.model, 7)
    with pytest.raises(segue.VersionMismatchError, match="no version of lineage"):
        segue.Publisher(run.store, base=run.model)
    with pytest.raises(segue.InvalidArgumentError, match="'owned' goes with"):
        segue.Publisher(run.store, base=run.model, owned=["scale"])
    with pytest.raises(segue.Error, match="nowhere"):
        segue.Publisher(run.store, base="nowhere")


@pytest.mark.parametrize("change, message", [
    (lambda a: read_only(a), "read only"),
    (lambda a: a.T, "not contiguous"),
    (lambda a: bytes(a), "read only"),
    (lambda a: object(), "is no tensor"),
])
def test_bind_refuses(run, change, message):
    receiver = segue.Receiver(run.store)
    with pytest.raises(segue.InvalidArgumentError, match=f"tensor '{NAME}'.*{message}"):
        receiver.bind(NAME, change(run.live[NAME]))


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("change, error, message", [
    ({NAME: None}, segue.InvalidArgumentError, NAME),
    ({"nobody": np.zeros(3, np.float32)}, segue.InvalidArgumentError, "nobody"),
    ({NAME: np.zeros((200, 300), np.float16)}, segue.InvalidArgumentError, NAME),
    ({NAME: np.zeros((300, 200), np.int16)}, segue.InvalidArgumentError, NAME),
    ({NAME: np.zeros((300, 200), np.float16)}, segue.VersionMismatchError, "no version"),
])
def test_open_refuses_what_is_not_the_model(run, change, error, message):
    tensors = {**copy_of(run.live), **change}
    receiver = segue.Receiver(run.store)
    for name, array in tensors.items():
        if array is not None:
            receiver.bind(name, array)
    with pytest.raises(error, match=message):
        receiver.open()
    run.check_unchanged()


def test_open_refuses_overlapping_tensors(tmp_path):
    memory = np.zeros(64, np.float32)
    publisher = segue.Publisher(tmp_path / "store", base={"a": memory[:32], "b": memory[32:]})
    publisher.publish({"a": memory[:32], "b": memory[32:]})
    receiver = segue.Receiver(tmp_path / "store")
    receiver.bind("a", memory[:32])
    receiver.bind("b", memory[16:48])
    with pytest.raises(segue.InvalidArgumentError, match="'a'.*'b'|'b'.*'a'"):
        receiver.open()


REPLACE = {
    "data": lambda t: setattr(t, "data", t.data.clone()),
    "resize": lambda t: t.resize_(2),
    "larger": lambda t: t.resize_(3_000_000),
    "storage": lambda t: t.untyped_storage().resize_(0),
}


@needs_torch
@pytest.mark.parametrize("how", REPLACE)
@pytest.mark.parametrize("when", ["before the prepare", "after the prepare"])
def test_tensor_replaced_while_bound(run, how, when):
    tensors = {name: torch.from_numpy(array.copy()) for name, array in run.live.items()}
    tensors[NAME] = tensors[NAME].clone()  # Memory of torch's own, which can be resized.
    with bound(run.store, tensors).open() as receiver:
        others = {name: tensor.clone() for name, tensor in tensors.items() if name != NAME}
        step(run.model, 2)
        run.publisher.publish(run.model)
        if when == "after the prepare":
            receiver.prepare(session="s")
            receiver.wait_prepared()
        old = tensors[NAME].data
        kept = old.clone() if how == "data" else None
        REPLACE[how](tensors[NAME])
        with pytest.raises(segue.InvalidArgumentError, match=f"tensor '{NAME}': its memory was"):
            receiver.apply("s") if when == "after the prepare" else receiver.update()
        assert not receiver.status.ready
        for name, tensor in others.items():
            assert torch.equal(tensors[name], tensor), name
        if kept is not None:  # What had been bound was not freed, and not written.
            assert torch.equal(old, kept) and torch.equal(tensors[NAME], kept)


def test_numpy_array_replaced_while_bound(run):
    tensors = copy_of(run.live)
    with bound(run.store, tensors).open() as receiver:
        step(run.model, 2)
        run.publisher.publish(run.model)
        tensors["scale"].resize((100_000,), refcheck=False)
        with pytest.raises(segue.InvalidArgumentError, match="tensor 'scale': its memory was"):
            receiver.update()
        assert same_bytes({NAME: tensors[NAME]}, {NAME: run.live[NAME]})


def test_after_close(run):
    run.receiver.close()
    run.receiver.close()
    with pytest.raises(segue.InvalidArgumentError, match="closed"):
        run.receiver.update()
    with pytest.raises(segue.InvalidArgumentError, match="closed"):
        run.receiver.step()
    with pytest.raises(segue.InvalidArgumentError):
        run.receiver.bind(NAME, run.live[NAME])
    run.publisher.close()
    run.publisher.close()
    with pytest.raises(segue.InvalidArgumentError, match="closed"):
        run.publisher.publish(run.model)
    run.receiver = bound(run.store, run.live)
    never = bound(run.store, run.live)
    never.close()
    with pytest.raises(segue.InvalidArgumentError, match="closed"):
        never.open()


def test_bind_comes_first(run):
    with pytest.raises(segue.InvalidArgumentError, match="before open"):
        run.receiver.bind(NAME, run.live[NAME])
    with pytest.raises(segue.InvalidArgumentError, match="no tensors to bind"):
        segue.Receiver(run.store, name="x", checkpoint="y").bind(NAME, run.live[NAME])
    for wrong in ({"close_gate": print}, {"ranks": 2}, {"rank": 1}):
        with pytest.raises(segue.InvalidArgumentError):
            segue.Receiver(run.store, **wrong)


def test_nothing_is_pickled(run):
    for thing in (run.publisher, run.receiver, run.receiver.step()):
        with pytest.raises(TypeError):
            pickle.dumps(thing)


def test_reports_and_status_are_pickled(run):
    step(run.model, 2)
    published = run.publisher.publish(run.model)
    for record in (published, run.receiver.update(), run.receiver.status):
        again = pickle.loads(pickle.dumps(record))
        assert type(again) is type(record)
        assert again.as_dict() == record.as_dict()
        assert copy.deepcopy(record).as_dict() == record.as_dict()
    status = run.receiver.status
    assert (status.base_version, status.version, status.failure) == (1, 2, "ok")
    with pytest.raises(segue.VersionMismatchError):
        run.receiver.update(to=1)
    again = pickle.loads(pickle.dumps(run.receiver.status))
    assert (again.state, again.failure) == ("FAILED", "version_mismatch")


def test_attach_refuses(tmp_path):
    with pytest.raises(segue.NotFoundError, match="no segment"):
        segue.attach(f"nobody-{os.getpid()}", timeout=0.05)
    with pytest.raises(segue.InvalidArgumentError):
        segue.attach("../x", timeout=0)


def test_one_thread_at_a_time_publishes(run):
    outcomes = []

    def publish():
        try:
            run.publisher.publish(run.model)
            outcomes.append("done")
        except segue.InvalidArgumentError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=publish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "done" in outcomes
    assert set(outcomes) <= {"done", "another thread uses this publisher"}
    run.receiver.update()
    run.check_unchanged(version=1 + outcomes.count("done"))


@pytest.mark.parametrize("make, named", [
    (lambda: segue.row_slice(8, -1, 2, 2), "begin is a whole number, at least 0, not -1"),
    (lambda: segue.row_slice(8, 0, 2.5, 2), "count is a whole number"),
    (lambda: segue.column_slice(8, 8, 0, 2, True), "width is a whole number"),
    (lambda: segue.transposed_view("8", 8, 2), "rows is a whole number"),
    (lambda: segue.box_view((4, -4), (0, 0), (1, 1), (1, 1)), "each of shape"),
    (lambda: segue.box_view((4, 4), (0, 3), (4, 2), (4, 1)), "dimension 1 of a view takes 2"),
    (lambda: segue.blocked_scale_views(2**64, 4), "rows is at most"),
])
def test_views_that_no_layout_has(make, named):
    with pytest.raises(segue.InvalidArgumentError, match=named):
        make()
