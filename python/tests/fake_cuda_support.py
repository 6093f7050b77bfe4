# SPDX-License-Identifier: Apache-2.0
"""Tensors in the memory of the fake CUDA driver (tests/fake_cuda), as other libraries would have
them in that of a GPU: through DLPack, and out of reach for everybody who follows their address."""

import contextlib
import ctypes
import math
import os
import pathlib

import numpy as np

LIBRARY = pathlib.Path(os.environ.get("SEGUE_BUILD_DIR", pathlib.Path(__file__).resolve()
                                      .parents[2] / "build")) / "libsegue_fake_cuda.so"
_CUDA = 2
_CODES = {"f": 2, "i": 0, "u": 1}


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("ordinal", ctypes.c_int32)]


class _Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    """DLTensor of DLPack, and what DLManagedTensor adds."""
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32),
                ("dtype", _Dtype), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class FakeGpu:
    """The driver, loaded; what it gave must have come back in the end."""

    def __init__(self):
        self._driver = ctypes.CDLL(str(LIBRARY))
        self._context = ctypes.c_void_p()
        self._stream = ctypes.c_void_p()
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self._call("cuStreamCreateWithPriority", ctypes.byref(self._stream), 0, 0)

    def _check(self, name, *arguments):
        result = getattr(self._driver, name)(*arguments)
        assert result == 0, (name, result)

    def _call(self, name, *arguments):
        """In the device's context, as every thread that works with it has to be."""
        self._check("cuCtxPushCurrent_v2", self._context)
        try:
            self._check(name, *arguments)
        finally:
            self._check("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def fail(self, name, skip=0):
        """The call of `name` after `skip` others fails."""
        self._driver.segue_fake_fail(name.encode(), skip, 999)

    def allocate(self, size):
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address):
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address, array):
        data = np.ascontiguousarray(array)
        if data.nbytes:
            self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address),
                       ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes),
                       self._stream)
            self._call("cuStreamSynchronize", self._stream)

    def read(self, address, shape, dtype):
        array = np.empty(shape, dtype)
        if array.nbytes:
            self._call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(array.ctypes.data),
                       ctypes.c_uint64(address), ctypes.c_size_t(array.nbytes), self._stream)
            self._call("cuStreamSynchronize", self._stream)
        return array

    def close(self):
        """Aborts where something was never given back."""
        self._call("cuStreamDestroy_v2", self._stream)
        self._check("cuDevicePrimaryCtxRelease_v2", 0)
        self._driver.segue_fake_reset()


class FakeGpuTensor:
    """An array's copy in the fake GPU's memory."""

    def __init__(self, gpu, array, ordinal=0):
        self._gpu, self.shape, self.dtype, self._ordinal = gpu, array.shape, array.dtype, ordinal
        self.address = gpu.allocate(array.nbytes)
        gpu.write(self.address, array)
        self._shape = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        self._managed = _Tensor(
            self.address, _Device(_CUDA, ordinal), len(self.shape),
            _Dtype(_CODES[self.dtype.kind], 8 * self.dtype.itemsize, 1), self._shape, None, 0, None,
            None)

    def __dlpack_device__(self):
        return (_CUDA, self._ordinal)

    def __dlpack__(self, **_):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p,
                                                         ctypes.c_void_p]
        return make(ctypes.addressof(self._managed), b"dltensor", None)

    @property
    def nbytes(self):
        return math.prod(self.shape) * self.dtype.itemsize

    def numpy(self):
        return self._gpu.read(self.address, self.shape, self.dtype)

    def free(self):
        self._gpu.free(self.address)


@contextlib.contextmanager
def on_gpu(gpu, model):
    """Copies of a model's arrays on the GPU."""
    tensors = {name: FakeGpuTensor(gpu, array) for name, array in model.items()}
    try:
        yield tensors
    finally:
        for tensor in tensors.values():
            tensor.free()
