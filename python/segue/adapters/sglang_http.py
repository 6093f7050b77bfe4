# SPDX-License-Identifier: Apache-2.0
"""Control of an SGLang server that runs the plugin of segue.adapters.sglang, over its HTTP.

The order is fixed: stage while the engine serves; pause; write, flush, label the version; go on. A
refusal before the first byte was written lets the engine go on with its old weights. Where weights
are new and a cache could not be flushed, or an answer was lost, the engine stays paused
(NotFinishedError) until `finish`, which may be repeated: what the cache holds may belong to weights
that are no more.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import time
import urllib.error
import urllib.request
from multiprocessing.reduction import ForkingPickler

from .. import InvalidArgumentError, TaintedError, UnavailableError, UnsupportedError
from .sglang import LOADER, PREFIX, Command

POLL_S = 0.05


class RefusedError(UnavailableError):
    """The engine said no, and has written nothing."""


class NotFinishedError(UnavailableError):
    """The engine is paused, with new weights or not known which; call finish()."""


class SGLangControl:
    """An SGLang server at `url` ("http://HOST:PORT") with `ranks` tensor-parallel ranks. `token`:
    its admin key, if any; `mode`: how it pauses ("retract", "in_place" or "abort"); `timeout_s`:
    of one request."""

    def __init__(self, url: str, *, ranks: int = 1, token: str = "", mode: str = "retract",
                 timeout_s: float = 120.0):
        if mode not in ("retract", "in_place", "abort"):
            raise InvalidArgumentError(f"SGLang has no mode '{mode}' of pausing")
        self._url, self._ranks, self._token = url.rstrip("/"), ranks, token
        self._mode, self._timeout_s = mode, timeout_s

    def open(self, *, flush_cache: bool = True, **options) -> dict:
        """Has the engine bind and prove its weights and come to the newest version; `options`:
        fields of EngineOptions. The label is set to the version's number."""
        status = self._paused(lambda: self._write(Command("open", options=options), flush_cache))
        self._post("/update_weight_version", {"new_version": str(status["version"]),
                                              "abort_all_requests": False})
        return status

    def status(self) -> dict:
        """State and version of rank 0's receiver."""
        return self.command(Command("status"))

    def update(self, to: int | None = None, *, label: str = "", flush_cache: bool = True) -> dict:
        """Brings the engine to version `to` (by default the newest). `label`: what it calls its
        weights, by default the version's number."""
        status = self.command(Command("prepare", to))
        target = int(status["target"])
        self._staged(status)
        return self._paused(lambda: self._write(Command("apply", target), flush_cache,
                                                label or str(target)))

    def finish(self, to: int, *, label: str = "", flush_cache: bool = True) -> dict:
        """After an update that was written and not flushed: flushes, labels and goes on."""
        status = self._write(Command("apply", to), flush_cache, label or str(to))
        self._post("/continue_generation", {})
        return status

    def _paused(self, write) -> dict:
        """Pauses, writes, goes on; where it is not known that nothing was written, stays paused."""
        self._post("/pause_generation", {"mode": self._mode})
        try:
            status = write()
        except (RefusedError, UnsupportedError):
            self._post("/continue_generation", {})
            raise
        self._post("/continue_generation", {})
        return status

    def _write(self, command: Command, flush_cache: bool, label: str | None = None) -> dict:
        if flush_cache and self._mode == "in_place":
            raise UnsupportedError("paused in place, requests keep their cache, and SGLang does "
                                   "not flush it; pause by 'retract' or 'abort', or do not flush")
        try:
            return self.command(command, flush_cache=flush_cache, weight_version=label)
        except RefusedError as error:
            if "TaintedError" in str(error):
                raise TaintedError(f"the engine stays paused: {error}") from error
            raise
        except UnavailableError as error:
            raise NotFinishedError(f"the engine stays paused until finish(): {error}") from error

    def _staged(self, status: dict) -> None:
        deadline = time.monotonic() + self._timeout_s
        while status["state"] == "PREPARING":
            if time.monotonic() > deadline:
                raise UnavailableError(f"nothing was staged within {self._timeout_s:g} s")
            time.sleep(POLL_S)
            status = self.status()

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
        return json.JSONDecoder().raw_decode(message[len(PREFIX):])[0]

    def _post(self, path: str, body: dict) -> dict:
        request = urllib.request.Request(
            self._url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
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
