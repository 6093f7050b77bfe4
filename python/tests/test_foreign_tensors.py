# SPDX-License-Identifier: Apache-2.0
"""Tensors of other libraries that are not what they say: copies, memory that was replaced behind
the object, scalars whose address is gone, capsules that lie. Each is one exception with the
tensor's name, and nothing is read or written through it."""

import ctypes
import gc

import numpy as np
import pytest

import segue
from python_support import bound
from segue.tensors import describe_anywhere

try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")

refused = pytest.raises(segue.InvalidArgumentError, match="'x'")


class Exporter:
    """Gives what `capsule` makes, and says that it is on `device`."""

    def __init__(self, capsule, device=(1, 0)):
        self.capsule, self.device = capsule, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        return self.capsule() if callable(self.capsule) else self.capsule


class Wrapper(Exporter):
    """Hands all calls on to a tensor, with their arguments."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **arguments):
        return self.tensor.__dlpack__(**arguments)


# --- copies and replaced memory ----------------------------------------------------------------


class Copies(Wrapper):
    """Ignores what it is asked for, gives a copy and says so."""

    def __dlpack__(self, *, max_version=None, **_):
        return self.tensor.__dlpack__(max_version=max_version, copy=True)


class SilentCopies(Wrapper):
    """Gives a copy each time, as what is packed or lies elsewhere has to, and does not say so."""

    def __dlpack__(self, **arguments):
        return self.tensor.copy().__dlpack__(**arguments)


copying = pytest.mark.parametrize("kind", [Copies, SilentCopies])


@copying
def test_a_copy_of_an_exporter_is_published(tmp_path, kind):
    """A publisher reads bytes and keeps the exporter's as long as it does."""
    arrays = {name: np.arange(1 << 16, dtype=np.float32) * k for k, name in enumerate("xyz")}
    publisher = segue.Publisher(tmp_path / "store", base={n: kind(a) for n, a in arrays.items()})
    live = {name: array.copy() for name, array in arrays.items()}
    for array in arrays.values():
        array[::1000] += 1
    assert publisher.publish({name: kind(array) for name, array in arrays.items()}).committed
    arrays["y"][7] = 5
    publisher.begin()
    for name, array in arrays.items():
        publisher.put(name, kind(array))
    assert publisher.commit().changed_elements == 1
    with bound(tmp_path / "store", live).open() as receiver:
        receiver.update()
    assert all(np.array_equal(live[name], array) for name, array in arrays.items())


@copying
def test_a_copy_of_an_exporter_is_not_bound(run, kind):
    """An update would write to it, and the tensor would stay as it is."""
    store, old, _ = run
    receiver = segue.Receiver(store)
    with pytest.raises(segue.InvalidArgumentError, match="'x'.*gives a copy each time"):
        receiver.bind("x", kind(old))
    with pytest.raises(segue.InvalidArgumentError, match="'x'.*gives a copy each time"):
        receiver.bind("x", lambda: kind(old))
    receiver.bind("x", old)
    receiver.update()


def test_memory_that_is_replaced_while_it_is_published_is_still_noticed(run):
    store, _, new = run

    class Moves(Wrapper):
        """Of another object's memory from the third export on."""
        exports = 0

        def __dlpack__(self, **arguments):
            self.exports += 1
            if self.exports == 3:
                self.tensor = self.tensor.copy()
            return super().__dlpack__(**arguments)

    publisher = segue.Publisher(store, base={"x": new})
    with pytest.raises(segue.InvalidArgumentError, match="'x' was written to, or its memory"):
        publisher.publish({"x": Moves(new.copy())})
    assert publisher.publish({"x": new}).target_version == 2


def test_an_exporter_is_asked_for_no_copy():
    asked = []

    class Asked(Wrapper):
        def __dlpack__(self, **arguments):
            asked.append(arguments)
            return super().__dlpack__(**arguments)

    describe_anywhere("x", Asked(np.arange(64, dtype=np.float32)))
    assert asked[0]["copy"] is False

    class Old(Wrapper):
        """Of before DLPack 1.0."""
        def __dlpack__(self, stream=None):
            return self.tensor.__dlpack__()

    assert describe_anywhere("x", Old(np.arange(64, dtype=np.float32))).shape == (64,)


@pytest.fixture
def run(tmp_path):
    """(store, version 0, version 1)."""
    old = {"x": np.arange(1 << 14, dtype=np.float32)}
    publisher = segue.Publisher(tmp_path / "store", base=old)
    new = {"x": old["x"] + 1}
    publisher.publish(new)
    return tmp_path / "store", old["x"], new["x"]


@pytest.mark.parametrize("change", ["replaced", "raises", "shorter", "elsewhere"])
def test_memory_that_was_replaced_behind_the_object_is_noticed(run, change):
    store, old, new = run
    live = Wrapper(old.copy())
    with bound(store, {"x": live}).open() as receiver:
        before = live.tensor
        if change == "replaced":
            live.tensor = old.copy()
        elif change == "raises":
            live.tensor = None
        elif change == "shorter":
            live.tensor = before[:-1]
        else:
            live.__class__ = type("Elsewhere", (Wrapper,), {"__dlpack_device__": lambda _: (7, 0)})
        with pytest.raises(segue.InvalidArgumentError, match="'x'"):
            receiver.update()
        assert np.array_equal(before, old)
    live = Wrapper(old.copy())
    with bound(store, {"x": live}).open() as receiver:
        receiver.update()
        assert np.array_equal(live.tensor, new)


# --- scalars and tensors without memory --------------------------------------------------------


def test_scalars_of_numpy_are_each_what_they_are(tmp_path):
    values = {f"s{k}": np.float32(k + 0.5) for k in range(6)}
    live = {name: np.zeros((), np.float32) for name in values}
    publisher = segue.Publisher(tmp_path / "store", base=live)
    publisher.publish(values)
    with bound(tmp_path / "store", live).open() as receiver:
        receiver.update()
    assert {name: float(array) for name, array in live.items()} == {
        name: float(value) for name, value in values.items()}
    publisher.begin()
    for name, value in values.items():
        publisher.put(name, value)
        gc.collect()
    assert publisher.commit().changed_elements == 0


def test_a_scalar_is_not_bound(run):
    store, _, _ = run
    with pytest.raises(segue.InvalidArgumentError, match="'x': its memory is read only"):
        segue.Receiver(store).bind("x", np.float32(1))


@needs_torch
def test_a_tensor_without_memory_is_refused(tmp_path):
    zeros = torch._efficientzerotensor((1 << 14,))
    with pytest.raises(segue.InvalidArgumentError, match="'x': it has no memory"):
        describe_anywhere("x", zeros)
    base = {"x": np.arange(1 << 14, dtype=np.float32), "y": np.zeros(4, np.float32)}
    publisher = segue.Publisher(tmp_path / "store", base=base, missing_is_unchanged=True)
    with refused:
        publisher.publish({"x": zeros, "y": np.ones(4, np.float32)})
    with refused:
        publisher.begin()
        publisher.put("x", zeros)
    with refused:
        segue.Receiver(tmp_path / "store").bind("x", zeros)


@needs_torch
def test_tensors_that_hold_no_bytes_are_named(tmp_path):
    strange = [torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
               torch.nn.LazyLinear(3).weight, torch.zeros(4, device="meta")]
    if hasattr(torch, "float4_e2m1fn_x2"):
        strange.append(torch.zeros((), dtype=torch.uint8).view(torch.float4_e2m1fn_x2))
    torch.func.vmap(lambda one: strange.append(one) or one)(torch.ones(2, 3))
    for tensor in strange:
        with refused:
            describe_anywhere("x", tensor)


# --- capsules that lie -------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("ordinal", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


ARRAY = np.arange(16, dtype=np.float32)
KEPT = []  # What capsules point at.


def capsule(shape=(16,), strides=None, kind=1, code=2, bits=32, lanes=1, offset=0, ndim=None,
            data=ARRAY.ctypes.data, versioned=False, major=1, flags=0, no_shape=False):
    managed = _Versioned() if versioned else _Managed()
    sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    steps = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
    name = ctypes.c_char_p(b"dltensor_versioned" if versioned else b"dltensor")
    tensor = managed.tensor
    tensor.data, tensor.kind, tensor.ndim = data, kind, len(shape) if ndim is None else ndim
    tensor.code, tensor.bits, tensor.lanes, tensor.offset = code, bits, lanes, offset
    if not no_shape:
        tensor.shape = sizes
    if steps is not None:
        tensor.strides = steps
    if versioned:
        managed.major, managed.flags = major, flags
    KEPT.append((managed, sizes, steps, name))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.addressof(managed), name, None)


@pytest.mark.parametrize("lie", [
    {"shape": (-16,)}, {"shape": (-4, -4)}, {"strides": (0,)}, {"strides": (-1,)},
    {"kind": 2, "data": 0x7F0000000000}, {"bits": 0}, {"bits": 4}, {"lanes": 0}, {"lanes": 4},
    {"code": 99}, {"ndim": -1}, {"ndim": 1 << 30}, {"data": 0}, {"versioned": True, "major": 99},
    {"versioned": True, "major": 0}, {"shape": (2**62, 2**62)},
    {"shape": (2**62, 2**62, 0)}, {"no_shape": True}, {"shape": (2**61,)}])
def test_a_capsule_that_lies(lie):
    with pytest.raises(segue.Error, match="'x'"):
        describe_anywhere("x", Exporter(lambda: capsule(**lie)))


def test_capsules_that_are_good():
    found = describe_anywhere("x", Exporter(lambda: capsule()))
    assert (found.address, found.shape, found.writable) == (ARRAY.ctypes.data, (16,), True)
    found = describe_anywhere("x", Exporter(lambda: capsule((15,), offset=4)))
    assert (found.address, found.shape) == (ARRAY.ctypes.data + 4, (15,))
    whole = Exporter(lambda: capsule((4, 4), (4, 1), versioned=True, flags=1))
    found = describe_anywhere("x", whole)
    assert (found.shape, found.writable) == ((4, 4), False)
    assert describe_anywhere("x", Exporter(lambda: capsule((), ndim=0))).shape == ()
    assert describe_anywhere("x", Exporter(lambda: capsule((0, 3), data=0))).nbytes == 0


def raising():
    raise KeyError("the exporter's own")


@pytest.mark.parametrize("exporter", [
    Exporter(None), Exporter("x"), Exporter(3), Exporter(raising), Exporter(capsule, (1,)),
    Exporter(capsule, ("cpu", 0)), Exporter(capsule, None), Exporter(capsule, (1, 2**40)),
    Exporter(capsule, (1, 1))])
def test_an_exporter_that_does_not_keep_to_dlpack(exporter):
    with refused:
        describe_anywhere("x", exporter)


def test_what_an_exporter_raises_is_the_cause():
    with pytest.raises(segue.InvalidArgumentError, match="'x'.*KeyError.*own") as caught:
        describe_anywhere("x", Exporter(raising))
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_capsule_is_taken_once():
    used = ARRAY.__dlpack__()
    assert describe_anywhere("x", Exporter(used)).shape == (16,)
    with pytest.raises(segue.InvalidArgumentError, match="'x'.*no fresh capsule"):
        describe_anywhere("x", Exporter(used))


def test_exports_are_given_back():
    import sys
    array = np.arange(16, dtype=np.float32)
    before = sys.getrefcount(array)
    for _ in range(10):
        found = describe_anywhere("x", Wrapper(array))
        assert found.where() == (array.ctypes.data, array.nbytes)
    del found
    gc.collect()
    assert sys.getrefcount(array) == before


@pytest.mark.parametrize("name", ["\udc80", "a\ud800b"])
def test_a_name_that_is_no_text(name):
    with pytest.raises(segue.InvalidArgumentError, match="name is text"):
        describe_anywhere(name, ARRAY)


@pytest.mark.parametrize("dtype, shape", [
    (None, (1,)), (3, (1,)), ("F32", 3), ("F32", "12"), ("F32", (-1,)), ("F32", (1.5,)),
    ("F32", None), ("F32", (1 << 63,)), ("F32", ("1",))])
def test_a_spec_of_no_tensor(dtype, shape):
    with pytest.raises(segue.InvalidArgumentError):
        segue.TensorSpec(dtype, shape)


def test_a_spec_is_equal_however_its_shape_is_written():
    assert segue.TensorSpec("F32", [np.int64(2), 3]) == segue.TensorSpec("F32", (2, 3))


def test_a_shared_tensor_of_no_segment():
    with pytest.raises(BufferError, match="not of a segment"):
        memoryview(segue._core.SharedTensor.__new__(segue._core.SharedTensor))
