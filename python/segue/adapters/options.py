# SPDX-License-Identifier: Apache-2.0
"""EngineOptions: where an engine's weights come from, and those of the model that drafts for it.

What a caller leaves out comes from the environment or from what the engine says of itself. The
fields are plain values, so that they can be sent to an engine as JSON.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from .. import InvalidArgumentError, NotFoundError

ENVIRONMENT = "SEGUE_"
# What a draft has from its policy where its own options do not say.
_SHARED = ("store", "staging", "threads", "gate_timeout_s", "ranks_timeout_s", "public_keys",
           "scrub_rate", "decoder", "device_memory", "keep_slots")


@dataclasses.dataclass
class EngineOptions:
    """Where an engine's weights come from. What is left out comes from the environment:
    SEGUE_STORE, SEGUE_LINEAGE, SEGUE_CHECKPOINT, SEGUE_STAGING, SEGUE_PUBLIC_KEYS (with ':' between
    them).

    `checkpoint`: the directory that the engine was started from; by default what the engine says
    itself. `static`: patterns of parameters that do not come from a checkpoint. `probe`: look for
    tensors that no table knows by their bytes. `scrub_rate`, `decoder`, `device_memory`,
    `keep_slots`: as a Receiver has them, for each rank by itself ("" is no decoder by name).

    `draft`: the same, or a mapping of these fields, of the model that drafts for the engine. It
    names a lineage of its own, whose store, staging, threads, timeouts, keys, scrub and device
    options are by default the policy's, and its checkpoint what the engine says. Or it names the
    policy's lineage, where the engine loaded the draft out of the same checkpoint (layers of
    multi-token prediction); `static` alone may be others then. Nothing of it comes from the
    environment.
    """

    store: str = ""
    lineage: str = ""
    checkpoint: str = ""
    staging: str = ""
    threads: int = 0
    gate_timeout_s: float = 30.0
    ranks_timeout_s: float = 600.0
    public_keys: list[str] = dataclasses.field(default_factory=list)
    static: list[str] = dataclasses.field(default_factory=list)
    probe: bool = True
    scrub_rate: int = 0
    decoder: str = ""
    device_memory: int = 0
    keep_slots: bool = True
    draft: EngineOptions | dict[str, Any] | None = None

    def __post_init__(self):
        if isinstance(self.draft, dict):
            self.draft = EngineOptions(**self.draft)
        if self.draft is None:
            return
        if not isinstance(self.draft, EngineOptions):
            raise InvalidArgumentError(f"draft is a mapping of EngineOptions' fields, not "
                                       f"{self.draft!r:.100}")
        if self.draft.draft is not None:
            raise InvalidArgumentError("a draft has no draft of its own")
        if not self.draft.lineage:
            raise InvalidArgumentError("the options of a draft name its lineage")

    def completed(self, engine_checkpoint: str = "", draft_checkpoint: str = "") -> EngineOptions:
        """The same with what the environment and the engine say."""
        keys = self.public_keys or [key for key in _environment("PUBLIC_KEYS").split(":") if key]
        options = dataclasses.replace(
            self, store=self.store or _environment("STORE"),
            lineage=self.lineage or _environment("LINEAGE") or "default",
            checkpoint=self.checkpoint or _environment("CHECKPOINT") or engine_checkpoint,
            staging=self.staging or _environment("STAGING"), public_keys=keys)
        if not options.store:
            raise InvalidArgumentError("no store is given: name one, or set SEGUE_STORE")
        if not os.path.isdir(options.checkpoint):
            raise NotFoundError(
                f"'{options.checkpoint}' is no directory: the checkpoint that the engine was "
                "started from is needed for the names of its tensors; name it, or set "
                "SEGUE_CHECKPOINT")
        options.draft = self._completed_draft(options, draft_checkpoint)
        return options

    def _completed_draft(self, policy: EngineOptions, checkpoint: str) -> EngineOptions | None:
        if self.draft is None:
            return None
        plain = EngineOptions()
        taken = {name: getattr(policy, name) for name in _SHARED
                 if getattr(self.draft, name) == getattr(plain, name)}
        draft = dataclasses.replace(self.draft, **taken,
                                    checkpoint=self.draft.checkpoint or checkpoint)
        if draft.lineage == policy.lineage:
            return self._in_one_lineage(policy)
        if not os.path.isdir(draft.checkpoint):
            raise NotFoundError(f"'{draft.checkpoint}' is no directory: name the checkpoint that "
                                "the engine's draft model was loaded from in the options of draft")
        return draft


    def _in_one_lineage(self, policy: EngineOptions) -> EngineOptions:
        """Of a draft out of its policy's checkpoint: what else it says must not be another's."""
        draft = dataclasses.replace(policy, draft=None, static=self.draft.static)
        plain = EngineOptions()
        for field in dataclasses.fields(EngineOptions):
            said = getattr(self.draft, field.name)
            if said not in (getattr(plain, field.name), getattr(draft, field.name)):
                raise InvalidArgumentError(
                    f"the draft is of its policy's lineage '{policy.lineage}', so that its "
                    f"{field.name} is the policy's, not {said!r}")
        return draft


def _environment(name: str) -> str:
    return os.environ.get(ENVIRONMENT + name, "")
