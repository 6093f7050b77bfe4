# SPDX-License-Identifier: Apache-2.0
"""Elements as integers: live parameters and checkpoint tensors as numpy arrays, for comparing bits.

Only probing and a few checks need it; numpy is imported here and nowhere else in the bindings.
"""

from __future__ import annotations

import ctypes

from ... import UnsupportedError
from .checkpoint import Stored
from .placement import Live

try:
    import numpy
except ImportError:
    numpy = None


def need_numpy():
    if numpy is None:
        raise UnsupportedError("looking into weights needs numpy, which is not installed")


def integers(live: Live):
    """The parameter's elements as unsigned integers of their width, in place, in its shape."""
    need_numpy()
    dtype = numpy.dtype(f"u{live.width}")
    if live.elements == 0:
        return numpy.empty(live.shape, dtype)
    memory = (ctypes.c_char * live.extent).from_address(live.address)
    flat = numpy.frombuffer(memory, dtype)
    return numpy.lib.stride_tricks.as_strided(
        flat, live.shape, tuple(stride * live.width for stride in live.strides), writeable=False)


def stored_integers(stored: Stored):
    """The same for a checkpoint's tensor."""
    need_numpy()
    flat = numpy.frombuffer(stored.read(), numpy.dtype(f"u{stored.width}"))
    return flat.reshape(stored.places)
