# SPDX-License-Identifier: Apache-2.0
"""Tensors of other libraries that come through DLPack: what their capsule holds, where that lies
now, and whether each look at them gives a copy.

An exporter is a stranger: it may be of an older DLPack, replace its memory behind its object, copy
without saying so, or raise what it likes. Whatever it does is one InvalidArgumentError that names
the tensor.
"""

import math
import operator

from segue import _core
from segue.errors import InvalidArgumentError, told

# Kinds of devices: the CPU, a CUDA GPU, memory of the CPU that a GPU sees too.
_CPU, _CUDA, _CUDA_HOST = 1, 2, 3
# What __dlpack__ is asked with, the newest first. Whoever knows the word is asked for no copy.
_ARGUMENTS = ({"max_version": (1, 1), "copy": False}, {"max_version": (1, 1)}, {})


class Exported:
    """A tensor as its exporter gave it, held as long as this; `kind`: its dtype's code and bits;
    `device`: "cuda:0" or another, "" for the memory of this process."""

    def __init__(self, name, tensor):
        self._name, self._tensor = name, tensor
        place, ordinal = self._place()
        if place not in (_CPU, _CUDA, _CUDA_HOST):
            self._refuse(f"it is on a device of DLPack's type {place}; give one in the memory of "
                         "the CPU or of a CUDA GPU")
        self._array = array = self._export(place, ordinal)
        code, bits, lanes = array.dtype
        if lanes != 1:
            self._refuse(f"it has {lanes} lanes")
        self._check_contiguous()
        self.kind = (code, bits)
        self.device = f"cuda:{ordinal}" if place == _CUDA else ""
        self.shape, self.address, self.writable = tuple(array.shape), array.address, array.writable
        self.nbytes = math.prod(array.shape) * bits // 8

    def where(self):
        """(address, bytes), asked anew: a library may replace a tensor's memory behind its object.
        (0, 0) where it is not to be had any more."""
        try:
            now = self._again()
        except InvalidArgumentError:
            return 0, 0
        held = self._array
        same = (now.dtype, now.shape, now.strides) == (held.dtype, held.shape, held.strides)
        return (now.address if same else 0), math.prod(now.shape) * self.kind[1] // 8

    def copies(self):
        """Whether it says so, or two exports that are alive at once are in two places."""
        if self._array.copied:
            return True
        try:
            first, second = self._again(), self._again()
        except InvalidArgumentError:
            return False
        return self.nbytes > 0 and (second.copied or first.address != second.address)

    def _check_contiguous(self):
        shape, strides, expected = self._array.shape, self._array.strides, 1
        for count, stride in zip(reversed(shape), reversed(strides)):
            if count > 1 and stride != expected and 0 not in shape:
                self._refuse(f"it is not contiguous (shape {list(shape)}, strides "
                             f"{list(strides)}); Segue does not copy")
            expected *= count

    def _again(self):
        return self._export(*self._place())

    def _place(self):
        """(type of device, ordinal) as the exporter says."""
        try:
            place, ordinal = self._tensor.__dlpack_device__()
            return operator.index(place), operator.index(ordinal)
        except Exception as error:
            self._refuse(f"its __dlpack_device__ tells no device: {told(error)}", error)

    def _export(self, place, ordinal):
        capsule = self._capsule()
        try:
            return _core.import_dlpack(capsule, place, ordinal)
        except InvalidArgumentError as error:
            self._refuse(str(error))
        except (TypeError, OverflowError):
            self._refuse(f"its device is ({place}, {ordinal}), which DLPack has not")

    def _capsule(self):
        failure = None
        for arguments in _ARGUMENTS:
            try:
                return self._tensor.__dlpack__(**arguments)
            except TypeError as error:  # An exporter of an older DLPack knows fewer of them.
                failure = failure or error
            except Exception as error:
                failure = error
                break
        self._refuse(f"its __dlpack__ failed: {told(failure)}", failure)

    def _refuse(self, why, cause=None):
        raise InvalidArgumentError(f"tensor '{self._name}': {why}") from cause
