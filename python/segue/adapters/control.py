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
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from .. import InvalidArgumentError, TaintedError, UnavailableError, UnsupportedError

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
        self._url, self._token, self._timeout_s = url.rstrip("/"), token, timeout_s

    def open(self, **options) -> dict:
        """Has the engine bind its weights and prove which version they are, which becomes their
        label; nothing is written. `options`: fields of EngineOptions."""
        status = self._open(options)
        self._label(str(status["version"]))
        return status

    def update(self, to: int | None = None, *, label: str = "", flush_cache: bool = True) -> dict:
        """Brings the engine to version `to` (by default the newest); the receiver's status.
        `label`: what the engine calls its weights, by default the version's number."""
        status = self._prepare(to)
        target = int(status["target"])
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
        """State and version of rank 0's receiver."""

    @abc.abstractmethod
    def _open(self, options: dict) -> dict: ...

    @abc.abstractmethod
    def _label(self, label: str) -> None: ...

    @abc.abstractmethod
    def _prepare(self, to: int | None) -> dict: ...

    @abc.abstractmethod
    def _apply(self, to: int, label: str, flush_cache: bool) -> dict:
        """RefusedError if nothing was written, TaintedError if the weights are lost,
        NotFinishedError otherwise."""

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
            raise RefusedError(f"nothing was staged: {status['message']}")

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
        data = b"" if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data,
                                         {"Content-Type": "application/json"}, method="POST")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
                return json.loads(response.read() or b"{}")
        except urllib.error.HTTPError as error:
            text = error.read()
            if error.code == 400 and text.startswith(b"{"):
                return json.loads(text)
            raise UnavailableError(f"{path} answered {error.code}: {text[:300]!r}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise UnavailableError(f"{path} at {self._url}: {error}") from error


def poisoned(error: Exception) -> TaintedError:
    """Weights that are no version: nobody may compute with them."""
    return TaintedError(f"the engine stays paused: {error}")
