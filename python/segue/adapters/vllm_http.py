# SPDX-License-Identifier: Apache-2.0
"""Control of a vLLM server that runs segue.adapters.vllm.WorkerExtension, over its HTTP
(VLLM_SERVER_DEV_MODE=1).

It speaks to the workers by /collective_rpc, which any release has, and not by the weight transfer
endpoints: these tell no state, so that nobody could know when a version is staged, or what a
failed call has left behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import InvalidArgumentError, UnavailableError, UnsupportedError
from .control import (EngineControl, NotFinishedError, RefusedError, check_held, checked_status,
                      farthest, poisoned)

__all__ = ["NotFinishedError", "RefusedError", "VLLMControl"]

_RESETS = {"kv": "/reset_prefix_cache?reset_running_requests=true&reset_external=true",
           "mm": "/reset_mm_cache", "encoder": "/reset_encoder_cache"}


class VLLMControl(EngineControl):
    """A vLLM server. `mode`: "keep" (requests go on later), "wait" (they end first) or "abort";
    `caches`: which of "kv", "mm", "encoder" are reset after a write."""

    modes = ("keep", "wait", "abort")

    def __init__(self, url: str, *, caches: Sequence[str] = ("kv", "mm", "encoder"), **options):
        super().__init__(url, **options)
        if unknown := set(caches) - set(_RESETS):
            raise InvalidArgumentError(f"vLLM has no caches {sorted(unknown)}")
        self._caches = tuple(caches)

    def status(self) -> dict:
        """State and version of rank 0's receiver, or of the rank that is farthest from serving."""
        return farthest(self._call("segue_status"))

    def _call(self, method: str, **arguments) -> list[dict]:
        """One method of the extension at every worker; what each rank answers."""
        answer = self._post("/collective_rpc", {"method": method, "kwargs": arguments})
        results = answer.get("results") or []
        if not isinstance(results, list) or not results or not isinstance(results[0], dict):
            raise UnsupportedError(
                f"vLLM's workers did not answer '{method}', but: {answer!r:.300}; were they "
                "started with --worker-extension-cls segue.adapters.vllm.WorkerExtension?")
        return [checked_status(result) for result in results]

    def _open(self, options: dict) -> dict:
        statuses = self._call("segue_open", **options)
        if len({status.get("version") for status in statuses}) != 1:
            raise UnavailableError(f"vLLM's ranks hold different versions: {statuses!r:.300}")
        return farthest(statuses)

    def _label(self, label: str) -> None:
        self._post("/update_weight_version", {"new_version": label})

    def _prepare(self, to: int | None) -> dict:
        statuses = self._call("segue_update", version=to, action="prepare")
        if len({status.get("target") for status in statuses}) != 1:
            raise UnavailableError(f"vLLM's ranks prepare different versions: {statuses!r:.300}")
        return farthest(statuses)

    def _apply(self, to: int, label: str, flush_cache: bool) -> dict:
        statuses = self._written(to)
        check_held(statuses, to)
        self._complete(to, label, flush_cache)
        return farthest(statuses)

    def _written(self, to: int) -> list[dict]:
        """Has the workers apply. Where that fails they are asked what it has left: an answer may be
        lost, and vLLM's says nothing of the kind of a failure."""
        try:
            return self._call("segue_update", version=to, action="apply")
        except (UnavailableError, UnsupportedError) as error:
            try:
                statuses = self._call("segue_status")
            except (UnavailableError, UnsupportedError) as unknown:
                raise NotFinishedError(f"the engine stays paused until finish(): {error}; "
                                       f"{unknown}") from error
            for status in statuses:
                if status["state"] == "POISONED":
                    raise poisoned(error) from error
            for status in statuses:
                if status["state"] in ("APPLYING", "APPLIED") or status.get("version") == to:
                    raise NotFinishedError(
                        f"the engine stays paused until finish(): {error}") from error
            raise RefusedError(f"{error}; version {statuses[0].get('version')} is held: "
                               f"{statuses[0].get('message', '')}") from error

    def _complete(self, to: int, label: str, flush_cache: bool) -> None:
        try:
            for cache in self._caches if flush_cache else ():
                if self._post(_RESETS[cache], None).get("success", True) is not True:
                    raise UnavailableError(f"vLLM did not reset its cache '{cache}'")
            self._label(label)
        except UnavailableError as error:
            raise NotFinishedError(f"version {to} is written and the engine stays "
                                   f"paused until finish(): {error}") from error

    def _pause(self) -> None:
        self._post(f"/pause?mode={self._mode}&clear_cache=false", None)

    def _resume(self) -> None:
        self._post("/resume", None)
