# SPDX-License-Identifier: Apache-2.0
"""Weights of an engine in shared memory: tensors in place, and the gate around a forward step."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from segue import _core
from segue import options as checked
from segue._core import EngineVersion, SharedTensor
from segue.errors import NotFoundError, UnsupportedError
from segue.tensors import NUMPY_DTYPES, TORCH_DTYPES

if TYPE_CHECKING:  # Neither is needed.
    import numpy
    import torch

_TORCH_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_NUMPY_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


def attach(name: str, timeout: float = 10.0) -> "Weights":
    """Attaches to the segment `name` that a receiver (`segue serve`) keeps, and returns `Weights`.
    Waits for it at most `timeout` seconds: NotFoundError then. ResourceExhaustedError when every
    engine slot is taken."""
    return Weights(_core.EngineWeights.attach(checked.text("name", name),
                                              checked.seconds("timeout", timeout)))


def remove_segment(name: str) -> None:
    """Ends the shared memory segment `name`; no error where there is none. Steps that run end on
    what they read, and no other begins there: engines attach anew. InvalidArgumentError for what is
    no segment's name."""
    _core.remove_segment(checked.text("name", name))


class Weights(Mapping[str, SharedTensor]):
    """Live weights: a read-only mapping from names to tensors that alias the segment.

    Weights are read inside a step alone, also by work that was handed to other threads:

        with weights.step(timeout=30.0) as step:
            logits = model(tokens)          # step.version says which version this was

    While an update is applied a step waits, at most `timeout` seconds (UnavailableError then).
    A thread that is inside a step does not enter another. The mapping lives as long as any tensor
    that was made from it. A child made by fork counts as the same engine.
    """

    def __init__(self, core: _core.EngineWeights) -> None:
        self._core = core
        self._names = core.names()
        self._known = frozenset(self._names)
        # On the path of each step: no Python in between.
        self.step = core.step

    def __getitem__(self, name: str) -> SharedTensor:
        try:
            return self._core.find(name)
        except NotFoundError as error:
            raise KeyError(str(error)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def version(self) -> EngineVersion:
        """What the segment holds now: lineage, version, digest, serving. Inside a step it is the
        version that is read there."""
        return self._core.version()

    def numpy(self, name: str) -> "numpy.ndarray[Any, Any]":
        """A read-only numpy array that aliases the tensor. BF16 and FP8 need ml_dtypes."""
        import numpy
        tensor = self._core.find(name)
        dtype = _NUMPY_NAMES.get(tensor.dtype)
        if dtype is None:
            raise UnsupportedError(f"tensor '{name}': numpy has no dtype for {tensor.dtype}")
        try:
            found = numpy.dtype(dtype)
        except TypeError:
            import ml_dtypes
            found = numpy.dtype(getattr(ml_dtypes, dtype))
        if tensor.nbytes == 0:
            return numpy.zeros(tensor.shape, found)
        return numpy.frombuffer(tensor, found).reshape(tensor.shape)

    def torch(self, name: str) -> "torch.Tensor":
        """A torch tensor that aliases the tensor. It must never be written: the memory is mapped
        for reading, and a write ends the process."""
        import torch
        tensor = self._core.find(name)
        dtype = _TORCH_NAMES.get(tensor.dtype)
        if dtype is None or not hasattr(torch, dtype):
            raise UnsupportedError(f"tensor '{name}': torch has no dtype for {tensor.dtype}")
        dtype = getattr(torch, dtype)
        shape = list(tensor.shape)
        if tensor.dtype == "F4":
            shape[-1] //= 2
        if tensor.nbytes == 0:
            return torch.empty(shape, dtype=dtype)
        flat = torch.from_dlpack(tensor.as_bytes())
        return flat.view(dtype).reshape(shape)

    def tensors(self, framework: str) -> dict[str, Any]:
        """All of them: {name: tensor of "torch" or "numpy"}."""
        make = {"torch": self.torch, "numpy": self.numpy}.get(framework)
        if make is None:
            raise UnsupportedError(f"tensors() knows 'torch' and 'numpy', not {framework!r}")
        return {name: make(name) for name in self._names}

    def __repr__(self) -> str:
        try:
            held = self.version
        except Exception as error:  # Another process's, or the interpreter ends.
            return f"<segue.Weights, cannot be asked ({type(error).__name__})>"
        serving = "" if held.serving else ", not served now"
        return (f"<segue.Weights of lineage '{held.lineage}', {len(self)} tensors, at version "
                f"{held.version}{serving}>")

    def __reduce__(self) -> NoReturn:
        raise TypeError("Weights cannot be pickled: attach in each process")
