# SPDX-License-Identifier: Apache-2.0
"""Elements as integers: live parameters and checkpoint tensors as numpy arrays, for comparing bits.

Only probing and a few checks need it; numpy is imported here and nowhere else in the bindings.
"""

from __future__ import annotations

import ctypes

from ... import UnsupportedError
from .checkpoint import Stored
from .placement import Live, live_of

try:
    import numpy
except ImportError:
    numpy = None


def need_numpy():
    if numpy is None:
        raise UnsupportedError("looking into weights needs numpy, which is not installed")


def on_host(live: Live) -> Live:
    """The parameter itself, or a copy in the CPU's memory of one that a GPU has."""
    if not live.device:
        return live
    return live_of(live.name, live.tensor.detach().cpu().contiguous())


def memory_of(live: Live):
    """The bytes of a parameter in the CPU's memory, in place, which lives as long as they do."""
    memory = (ctypes.c_char * live.extent).from_address(live.address)
    memory.owner = live.tensor, live.keep
    return memory


def integers(live: Live):
    """The parameter's elements as unsigned integers of their width, in its shape; in place, or a
    copy of what a GPU has."""
    need_numpy()
    live, dtype = on_host(live), numpy.dtype(f"u{live.width}")
    if live.elements == 0:
        return numpy.empty(live.shape, dtype)
    flat = numpy.frombuffer(memory_of(live), dtype)
    return numpy.lib.stride_tricks.as_strided(
        flat, live.shape, tuple(stride * live.width for stride in live.strides), writeable=False)


def stored_integers(stored: Stored):
    """The same for a checkpoint's tensor."""
    need_numpy()
    flat = numpy.frombuffer(stored.read(), numpy.dtype(f"u{stored.width}"))
    return flat.reshape(stored.places)
