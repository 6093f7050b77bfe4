# SPDX-License-Identifier: Apache-2.0
"""Control of an SGLang server that runs the plugin of segue.adapters.sglang, over its HTTP."""

from __future__ import annotations

import base64
import io
import json
from multiprocessing.reduction import ForkingPickler

from .. import UnavailableError, UnsupportedError
from .control import (EngineControl, NotFinishedError, RefusedError, check_held, checked_status,
                      poisoned)
from .sglang import LOADER, PREFIX, Command

__all__ = ["NotFinishedError", "RefusedError", "SGLangControl"]


class SGLangControl(EngineControl):
    """An SGLang server with `ranks` tensor-parallel ranks. `token`: its admin key; `mode`:
    "retract" (requests go on later, their cache made anew), "in_place" or "abort"."""

    modes = ("retract", "in_place", "abort")

    def __init__(self, url: str, *, ranks: int = 1, **options):
        super().__init__(url, **options)
        self._ranks = ranks

    def status(self) -> dict:
        """State and version of rank 0's receiver."""
        return self.command(Command("status"))

    def command(self, command: Command, *, flush_cache: bool = False,
                weight_version: str | None = None) -> dict:
        """Sends one command to every rank; rank 0's status. RefusedError with the engine's own
        words, UnavailableError where its answer does not say that nothing was written."""
        answer = self._post("/update_weights_from_tensor", {
            "serialized_named_tensors": [_payload(command)] * self._ranks,
            "load_format": LOADER, "flush_cache": flush_cache, "weight_version": weight_version,
            "selector": "target"})
        message = str(answer.get("message", ""))
        if not answer.get("success"):
            refused = RefusedError if message.startswith(PREFIX) else UnavailableError
            raise refused(f"SGLang's answer to '{command.action}': {message}")
        if not message.startswith(PREFIX):
            raise UnsupportedError(
                f"SGLang did not answer as the plugin does, but: {message!r}; is segue installed "
                "beside it, and not left out by SGLANG_PLUGINS?")
        try:
            return checked_status(json.JSONDecoder().raw_decode(message[len(PREFIX):])[0])
        except (ValueError, RecursionError) as error:
            raise UnavailableError(f"SGLang's answer to '{command.action}' is no status: "
                                   f"{message!r:.300}") from error

    def _open(self, options: dict) -> dict:
        return self.command(Command("open", options=options))

    def _label(self, label: str) -> None:
        self._post("/update_weight_version", {"new_version": label, "abort_all_requests": False})

    def _prepare(self, to: int | None) -> dict:
        return self.command(Command("prepare", to))

    def _apply(self, to: int, label: str, flush_cache: bool) -> dict:
        if flush_cache and self._mode == "in_place":
            raise UnsupportedError("paused in place, requests keep their cache, and SGLang does "
                                   "not flush it; pause by 'retract' or 'abort', or do not flush")
        try:
            status = self.command(Command("apply", to), flush_cache=flush_cache,
                                  weight_version=label)
        except RefusedError as error:
            if "TaintedError" in str(error):
                raise poisoned(error) from error
            raise
        except (UnavailableError, UnsupportedError) as error:
            raise NotFinishedError(f"the engine stays paused until finish(): {error}") from error
        check_held([status], to)
        return status

    def _pause(self) -> None:
        self._post("/pause_generation", {"mode": self._mode})

    def _resume(self) -> None:
        self._post("/continue_generation", {})


def _payload(command: Command) -> str:
    """What SGLang's MultiprocessingSerializer reads. An empty tensor has no storage to share, so it
    may come from another process or machine."""
    try:
        import torch
        import torch.multiprocessing  # noqa: F401  (teaches ForkingPickler about tensors)
    except ImportError as error:
        raise UnsupportedError("commands for SGLang are made with torch, which is not "
                               "installed") from error
    buffer = io.BytesIO()
    ForkingPickler(buffer).dump([(command.name(), torch.empty(0))])
    return base64.b64encode(buffer.getvalue()).decode()
