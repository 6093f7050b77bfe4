# SPDX-License-Identifier: Apache-2.0
"""Joined: a model and the draft that an engine loaded out of the same checkpoint (layers of
multi-token prediction), seen as one module, so that one lineage holds both.

Engines keep such a layer in a module of its own, under other names than the checkpoint's. Here it
has the checkpoint's again, as vLLM and SGLang name these layers. Under others nothing is placed in
it, and it is refused; but for architectures without a table, where all is looked for by its bytes.
What the draft shares with the model is the model's alone.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping

from ... import InvalidArgumentError
from .checkpoint import Checkpoint, number_in

# What SGLang's drafts have beside their decoder.
_BESIDE_DECODER = ("model.enorm", "model.hnorm", "model.eh_proj", "model.shared_head")


def _place(tensor) -> tuple:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


class Joined:
    """`model` and `draft` are torch modules, `checkpoint` is the directory of both."""

    def __init__(self, model: object, draft: object, checkpoint: str | os.PathLike):
        if isinstance(model, Mapping) or isinstance(draft, Mapping):
            raise InvalidArgumentError("a draft of its policy's lineage, and the policy, are "
                                       "modules of torch, not mappings")
        self._model, self._draft, self._checkpoint = model, draft, checkpoint

    @functools.cached_property
    def _layer(self) -> str:
        """The first layer behind the model's own."""
        config = Checkpoint(self._checkpoint).config
        return f"model.layers.{number_in(config, 'num_hidden_layers', 0)}."

    def named_parameters(self, remove_duplicate: bool = True) -> Iterator[tuple[str, object]]:
        """The model's, then the draft's own; without `remove_duplicate` also what it shares."""
        if remove_duplicate:
            yield from self._joined("named_parameters", _place)
            return
        yield from self._model.named_parameters(remove_duplicate=False)
        for name, tensor in self._draft.named_parameters(remove_duplicate=False):
            yield f"draft.{name}", tensor

    def named_buffers(self) -> Iterator[tuple[str, object]]:
        """The same of buffers."""
        return self._joined("named_buffers", _place)

    def named_modules(self) -> Iterator[tuple[str, object]]:
        """The same of modules."""
        return self._joined("named_modules", id)

    def _joined(self, kind: str, identity) -> Iterator[tuple[str, object]]:
        known, names = set(), set(self._names)
        for name, value in getattr(self._model, kind)():
            known.add(identity(value))
            yield name, value
        for name, value in getattr(self._draft, kind)():
            if identity(value) in known:
                continue
            renamed = self._as_in_checkpoint(name)
            renamed = f"draft.{name}" if renamed in names else renamed
            names.add(renamed)
            yield renamed, value

    @property
    def _names(self) -> Iterator[str]:
        """All that the model has: a parameter may have the name of another's buffer."""
        for kind in ("named_parameters", "named_buffers", "named_modules"):
            yield from (name for name, _ in getattr(self._model, kind)())

    def _as_in_checkpoint(self, name: str) -> str:
        """vLLM's `model.layers.61.mtp_block.mlp` and SGLang's `model.decoder.mlp` are
        `model.layers.61.mlp`."""
        if ".mtp_block." in name:
            return name.replace(".mtp_block.", ".", 1)
        if name.startswith("model.decoder."):
            return self._layer + name.removeprefix("model.decoder.")
        if name.startswith(_BESIDE_DECODER):
            return self._layer + name.removeprefix("model.")
        return name
