# SPDX-License-Identifier: Apache-2.0
"""Control of an engine's server over its HTTP: what SGLang's and vLLM's have in common.

The order is fixed: stage while the engine serves; pause; write, flush, label the version; go on. A
refusal before the first byte was written lets the engine go on with its old weights. Where weights
are new and a cache could not be flushed, or an answer was lost, the engine stays paused
(NotFinishedError) until `finish`, which may be repeated: what a cache holds may belong to weights
that are no more.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Sequence

from .. import InvalidArgumentError, TaintedError, UnavailableError, UnsupportedError
from .http_call import Endpoint

POLL_S = 0.05
ENDED = ("FAILED", "ABORTED", "POISONED")  # States of a prepare that came to nothing.


class RefusedError(UnavailableError):
    """The engine said no, and has written nothing."""


class NotFinishedError(UnavailableError):
    """The engine is paused, with new weights or not known which; call finish()."""


class EngineControl(abc.ABC):
    """A server at `url` ("http://HOST:PORT"). `token`: its key, if any; `mode`: how it pauses;
    `timeout_s`: of one request, and of staging."""

    modes: tuple[str, ...]

    def __init__(self, url: str, *, token: str = "", mode: str = "", timeout_s: float = 120.0):
        self._mode = mode or self.modes[0]
        if self._mode not in self.modes:
            raise InvalidArgumentError(f"the engine has no mode '{mode}' of pausing")
        self._endpoint, self._timeout_s = Endpoint(url, token, timeout_s), timeout_s

    def open(self, **options) -> dict:
        """Has the engine bind its weights and prove which version they are, which becomes their
        label; nothing is written. `options`: fields of EngineOptions; with `draft` its draft model
        moves along."""
        status = self._open(options)
        self._label(str(number_in(status, "version")))
        return status

    def update(self, to: int | None = None, *, label: str = "", flush_cache: bool = True) -> dict:
        """Brings the engine to version `to` (by default the newest); the receiver's status.
        `label`: what the engine calls its weights, by default the version's number."""
        status = self._prepare(to)
        target = number_in(status, "target")
        if to is not None and target != to:
            raise UnavailableError(f"the engine was asked for version {to} and prepares {target}")
        self._staged(status)
        return self._paused(lambda: self._apply(target, label or str(target), flush_cache))

    def finish(self, to: int, *, label: str = "", flush_cache: bool = True) -> dict:
        """After an update that was not finished: writes what is not written, flushes, labels, and
        lets the engine go on."""
        status = self._apply(to, label or str(to), flush_cache)
        self._resume()
        return status

    @abc.abstractmethod
    def status(self) -> dict:
        """State and version of the engine's receivers: rank 0's, or that of the rank that is
        farthest from serving."""

    @abc.abstractmethod
    def _open(self, options: dict) -> dict: ...

    @abc.abstractmethod
    def _label(self, label: str) -> None: ...

    @abc.abstractmethod
    def _prepare(self, to: int | None) -> dict: ...

    @abc.abstractmethod
    def _apply(self, to: int, label: str, flush_cache: bool) -> dict:
        """Writes version `to` and makes sure that it is held (`check_held`) before it is labelled.
        RefusedError if nothing was written, TaintedError if the weights are lost, NotFinishedError
        otherwise."""

    @abc.abstractmethod
    def _pause(self) -> None: ...

    @abc.abstractmethod
    def _resume(self) -> None: ...

    def _staged(self, status: dict) -> None:
        deadline = time.monotonic() + self._timeout_s
        while status["state"] == "PREPARING":
            if time.monotonic() > deadline:
                raise UnavailableError(f"nothing was staged within {self._timeout_s:g} s")
            time.sleep(POLL_S)
            status = self.status()
        if status["state"] in ENDED:
            raise RefusedError(f"nothing was staged: {status.get('message', '')}")

    def _paused(self, write: Callable[[], dict]) -> dict:
        """Pauses, writes, goes on; where it is not known that nothing was written, stays paused."""
        self._pause()
        try:
            status = write()
        except (RefusedError, UnsupportedError):
            self._resume()
            raise
        self._resume()
        return status

    def _post(self, path: str, body: dict | None) -> dict:
        return self._endpoint.post(path, body)


def checked_status(value: object) -> dict:
    """A receiver's status as an engine answers it. UnavailableError for anything else."""
    kinds = {"state": str, "message": str, "ready": bool, "version": int, "target": int,
             "rank": int, "draft": dict}
    if isinstance(value, dict) and "state" in value and all(
            type(value[name]) is kind for name, kind in kinds.items() if name in value):
        return value
    raise UnavailableError(f"the engine answers what is no receiver's status: {value!r:.300}")


def number_in(status: dict, name: str) -> int:
    """The version that a status gives under `name`."""
    if not isinstance(status.get(name), int):
        raise UnavailableError(f"the engine's answer has no {name}: {status!r:.300}")
    return status[name]


# From far from serving to near.
_STATES = ("POISONED", "FAILED", "ABORTED", "CLOSED", "APPLYING", "PREPARING")


def farthest(statuses: Sequence[dict]) -> dict:
    """Of the ranks' statuses the one that is farthest from serving; of equals the first rank's."""
    def order(status):
        state = status["state"]
        return (_STATES.index(state) if state in _STATES else len(_STATES),
                status.get("rank", 0))

    return min(statuses, key=order)


def check_held(statuses: Sequence[dict], to: int) -> None:
    """Returns if every rank serves version `to`. TaintedError, NotFinishedError if one does not: an
    apply said that it was written."""
    for status in statuses:
        rank, state = status.get("rank", 0), status["state"]
        if state == "POISONED":
            raise poisoned(f"rank {rank} is POISONED: {status.get('message', '')}")
        if status.get("version") != to or status.get("ready") is not True:
            raise NotFinishedError(
                f"the engine stays paused until finish(): version {to} was applied, and rank "
                f"{rank} is at {status.get('version')} ({state})")
        draft = status.get("draft")
        if draft is not None and draft.get("version") != to:
            raise NotFinishedError(
                f"the engine stays paused until finish(): version {to} was applied, and the draft "
                f"of rank {rank} is at {draft.get('version')}")


def poisoned(error: object) -> TaintedError:
    """Weights that are no version: nobody may compute with them."""
    return TaintedError(f"the engine stays paused: {error}")
