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
from .control import EngineControl, NotFinishedError, RefusedError, poisoned

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
        """State and version of rank 0's receiver."""
        return self._call("segue_status")

    def _call(self, method: str, **arguments) -> dict:
        """One method of the extension at every worker; rank 0's answer."""
        answer = self._post("/collective_rpc", {"method": method, "kwargs": arguments})
        results = answer.get("results") or []
        if not results or not isinstance(results[0], dict):
            raise UnsupportedError(
                f"vLLM's workers did not answer '{method}', but: {answer!r}; were they started "
                "with --worker-extension-cls segue.adapters.vllm.WorkerExtension?")
        return min(results, key=lambda status: status.get("rank", 0))

    def _open(self, options: dict) -> dict:
        return self._call("segue_open", **options)

    def _label(self, label: str) -> None:
        self._post("/update_weight_version", {"new_version": label})

    def _prepare(self, to: int | None) -> dict:
        return self._call("segue_update", version=to, action="prepare")

    def _apply(self, to: int, label: str, flush_cache: bool) -> dict:
        status = self._written(to)
        self._complete(status, label, flush_cache)
        return status

    def _written(self, to: int) -> dict:
        """Has the workers apply. Where that fails they are asked what it has left: an answer may be
        lost, and vLLM's says nothing of the kind of a failure."""
        try:
            return self._call("segue_update", version=to, action="apply")
        except UnavailableError as error:
            try:
                status = self.status()
            except UnavailableError as unknown:
                raise NotFinishedError(f"the engine stays paused until finish(): {error}; "
                                       f"{unknown}") from error
            if status["state"] == "POISONED":
                raise poisoned(error) from error
            if status["state"] == "APPLYING" or (status["ready"] and status["version"] == to):
                raise NotFinishedError(
                    f"the engine stays paused until finish(): {error}") from error
            raise RefusedError(f"{error}; version {status.get('version')} is held: "
                               f"{status.get('message', '')}") from error

    def _complete(self, status: dict, label: str, flush_cache: bool) -> None:
        try:
            for cache in self._caches if flush_cache else ():
                if self._post(_RESETS[cache], None).get("success", True) is not True:
                    raise UnavailableError(f"vLLM did not reset its cache '{cache}'")
            self._label(label)
        except UnavailableError as error:
            raise NotFinishedError(f"version {status['version']} is written and the engine stays "
                                   f"paused until finish(): {error}") from error

    def _pause(self) -> None:
        self._post(f"/pause?mode={self._mode}&clear_cache=false", None)

    def _resume(self) -> None:
        self._post("/resume", None)
