# SPDX-License-Identifier: Apache-2.0
"""Dtypes and shapes as they come from numpy with ml_dtypes, torch, DLPack and buffers, and go back:
every one in place and bit for bit, NaN and -0.0 among them."""

import ast
import importlib.resources
import os
import warnings

import numpy as np
import pytest

import segue
from python_support import bound
from segue.tensors import DLPACK_DTYPES, NUMPY_DTYPES, TORCH_DTYPES, describe_anywhere

ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
try:
    import torch
except ImportError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def raw(count):
    """Every value that a byte can have."""
    return np.arange(count, dtype=np.uint32).astype(np.uint8)


def numpy_of(dtype_name):
    if dtype_name == "bool":
        return (raw(512) & 1).view(bool)
    try:
        dtype = np.dtype(dtype_name)
    except TypeError:
        dtype = np.dtype(getattr(ml_dtypes, dtype_name))
    return raw(512).view(dtype)


@pytest.mark.parametrize("name", NUMPY_DTYPES)
def test_numpy_dtypes(tmp_path, name):
    array = numpy_of(name)
    found = describe_anywhere("x", array)
    assert (found.dtype, found.shape) == (NUMPY_DTYPES[name], array.shape)
    assert found.address == array.ctypes.data and found.nbytes == 512 and found.writable
    check_round_trip(tmp_path, array, lambda a: a.view(np.uint8))


@needs_torch
@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_torch_dtypes(tmp_path, name):
    if not hasattr(torch, name):
        pytest.skip(f"this torch has no {name}")
    tensor = torch.from_numpy(raw(512)).clone()
    tensor = (tensor & 1).bool() if name == "bool" else tensor.view(getattr(torch, name))
    found = describe_anywhere("x", tensor)
    assert found.dtype == TORCH_DTYPES[name]
    assert found.shape == ((1024,) if found.dtype == "F4" else tuple(tensor.shape))
    assert found.address == tensor.data_ptr() and found.nbytes == 512
    check_round_trip(tmp_path, tensor, lambda t: t.view(torch.uint8).numpy())


def check_round_trip(tmp_path, tensor, as_bytes):
    """Publishes a change of it and takes it into a copy."""
    live = tensor.copy() if hasattr(tensor, "copy") else tensor.clone()
    publisher = segue.Publisher(tmp_path / "store", base={"x": tensor})
    with bound(tmp_path / "store", {"x": live}).open() as receiver:
        as_bytes(tensor)[::3] ^= 1
        publisher.publish({"x": tensor})
        assert receiver.update().changed_elements > 0
        assert as_bytes(live).tobytes() == as_bytes(tensor).tobytes()


class OnlyDlpack:
    """A tensor of some other library."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **arguments):
        return self.tensor.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@needs_torch
@pytest.mark.parametrize("name", sorted(DLPACK_DTYPES.values()))
def test_dlpack(name):
    dtype = next(key for key, value in TORCH_DTYPES.items() if value == name)
    tensor = torch.from_numpy(raw(512) & 1).clone()
    tensor = tensor.bool() if name == "BOOL" else tensor.view(getattr(torch, dtype))
    found = describe_anywhere("x", OnlyDlpack(tensor))
    assert (found.dtype, found.shape, found.nbytes) == (name, tuple(tensor.shape), 512)
    assert found.address == tensor.data_ptr()


def test_dlpack_refusals():
    array = np.zeros((4, 6), np.float32)
    with pytest.raises(segue.InvalidArgumentError, match="'x'.*not contiguous"):
        describe_anywhere("x", OnlyDlpack(array.T))
    assert describe_anywhere("x", OnlyDlpack(array)).writable
    array.flags.writeable = False
    assert not describe_anywhere("x", OnlyDlpack(array)).writable

    class Elsewhere(OnlyDlpack):
        def __dlpack_device__(self):
            return (7, 0)
    with pytest.raises(segue.InvalidArgumentError, match="'x'.*device of DLPack's type 7"):
        describe_anywhere("x", Elsewhere(array))


@pytest.mark.parametrize("array, shape", [
    (np.zeros((), np.float32), ()), (np.zeros((0, 3), np.float32), (0, 3)),
    (np.zeros((3, 0), ml_dtypes.bfloat16), (3, 0)), (np.float32(1), ()),
])
def test_shapes(array, shape):
    assert describe_anywhere("x", array).shape == shape


@pytest.mark.parametrize("array", [
    np.zeros(3, np.complex128), np.zeros(3, "M8[s]"), np.zeros(3, ml_dtypes.int4),
    np.zeros(3, ml_dtypes.float4_e2m1fn)])
def test_dtypes_that_safetensors_has_not(array):
    with pytest.raises(segue.UnsupportedError, match="tensor 'x': safetensors has no dtype"):
        describe_anywhere("x", array)
    with pytest.raises(segue.InvalidArgumentError, match="plain little-endian"):
        describe_anywhere("x", np.zeros(3, [("a", "f4")]))


def test_bf16_and_fp8_in_a_segment(tmp_path):
    model = {f"{dtype}": numpy_of(dtype).reshape(2, -1) for dtype in NUMPY_DTYPES}
    publisher = segue.Publisher(tmp_path / "store", base=model)
    publisher.publish(model)
    name = f"python-dtypes-{os.getpid()}"
    checkpoint = write_safetensors(tmp_path / "checkpoint", model)
    receiver = segue.Receiver(tmp_path / "store", name=name, checkpoint=checkpoint).open()
    try:
        weights = segue.attach(name)
        with weights.step(), warnings.catch_warnings():
            warnings.simplefilter("error")
            for key, array in model.items():
                seen = weights.numpy(key)
                assert seen.dtype == array.dtype and seen.tobytes() == array.tobytes()
                assert not seen.flags.writeable
                assert bytes(memoryview(weights[key])) == array.tobytes()
                if torch is not None:
                    tensor = weights.torch(key)
                    assert tensor.dtype == getattr(torch, key)
                    assert tensor.data_ptr() == weights[key].address
                    assert tensor.view(torch.uint8).numpy().tobytes() == array.tobytes()
            float32 = np.from_dlpack(weights["float32"])
            assert float32.ctypes.data == weights["float32"].address
            assert not float32.flags.writeable
        del weights
        assert seen.tobytes() == array.tobytes()  # The mapping lives with the array.
        with pytest.raises(KeyError):
            segue.attach(name)["nobody"]
    finally:
        receiver.close()
        segue.remove_segment(name)


def write_safetensors(directory, model):
    import json
    directory.mkdir()
    header, at = {}, 0
    for key, array in model.items():
        header[key] = {"dtype": NUMPY_DTYPES[array.dtype.name], "shape": list(array.shape),
                       "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    data = b"".join(array.tobytes() for array in model.values())
    (directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return directory


def test_stubs_are_in_the_package():
    package = importlib.resources.files("segue")
    assert (package / "py.typed").is_file()
    names = {node.name for node in ast.parse((package / "_core.pyi").read_text()).body
             if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    missing = [name for name in dir(segue._core) if not name.startswith("_") and name not in names]
    assert not missing
