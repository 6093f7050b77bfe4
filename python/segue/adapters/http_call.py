# SPDX-License-Identifier: Apache-2.0
"""Requests to an engine's server, for its control: as strict as Segue's own HTTP client.

The server is another program, and its answer decides whether an engine goes on. So a request has
one deadline from its first byte to its last, an answer has a size, redirects are not followed (they
could carry the token elsewhere), proxies are not used, and whatever is no JSON object is an error.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import urllib.parse

from .. import InvalidArgumentError, UnavailableError

ANSWER_BYTES_MAX = 32 << 20


class Endpoint:
    """A server at `url` ("http://HOST:PORT", also https and with a path before all others).
    `token`: sent as a bearer; `timeout_s`: of one request, all of it."""

    def __init__(self, url: str, token: str, timeout_s: float):
        self._scheme, self._host, self._port, self._prefix = _parsed(url)
        if not isinstance(token, str) or not all("!" <= c <= "~" for c in token):
            raise InvalidArgumentError("the token has characters that no header can carry")
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, (int, float)) or not (
                0 < timeout_s <= 86400):
            raise InvalidArgumentError(f"{timeout_s!r} is no time to wait for an answer")
        self.url, self.timeout_s, self._token = url.rstrip("/"), float(timeout_s), token

    def post(self, path: str, body: dict | None) -> dict:
        """The object that the server answers with. UnavailableError for every other answer but a
        refusal (400) that says why in an object."""
        try:
            code, text = self._exchange(path, b"" if body is None else json.dumps(body).encode())
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"{path} at {self.url}: {error or type(error).__name__}"
                                   ) from error
        if code != 200 and not (code == 400 and text.startswith(b"{")):
            what = "; redirects are not followed" if 300 <= code < 400 else ""
            raise UnavailableError(f"{path} answered {code}: {text[:300]!r}{what}")
        try:
            answer = json.loads(text or b"{}")
        except (ValueError, RecursionError) as error:
            raise UnavailableError(f"{path} at {self.url} answered no JSON: {error}") from error
        if not isinstance(answer, dict):
            raise UnavailableError(f"{path} at {self.url} answered no object, but {text[:300]!r}")
        return answer

    def _exchange(self, path: str, data: bytes) -> tuple[int, bytes]:
        kind = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        connection = kind[self._scheme](self._host, self._port, timeout=self.timeout_s)
        late, sockets = threading.Event(), []
        timer = threading.Timer(self.timeout_s, _end, (sockets, late))
        timer.daemon = True
        timer.start()
        try:
            connection.connect()
            sockets.append(connection.sock)  # A response takes it from the connection.
            if late.is_set():
                raise TimeoutError
            headers = {"Content-Type": "application/json"}
            if self._token:
                headers["Authorization"] = f"Bearer {self._token}"
            connection.request("POST", self._prefix + path, data, headers)
            response = connection.getresponse()
            text = response.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            expired = late.is_set() or isinstance(error, TimeoutError)
            raise TimeoutError(self._late()) if expired else error
        finally:
            timer.cancel()
            connection.close()
        if late.is_set():  # What was cut off may look like a whole answer.
            raise TimeoutError(self._late())
        if len(text) > ANSWER_BYTES_MAX:
            raise OSError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
        return response.status, text

    def _late(self) -> str:
        return f"no whole answer within {self.timeout_s:g} s"


def _end(sockets: list[socket.socket], late: threading.Event) -> None:
    """Ends what the connection waits for, whatever that is."""
    late.set()
    for sock in sockets:
        try:
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            pass  # It has ended by itself.


def _parsed(url: str) -> tuple[str, str, int | None, str]:
    try:
        parts = urllib.parse.urlsplit(url)
        port, host = parts.port, parts.hostname
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidArgumentError(f"{url!r} is no address of a server: {error}") from error
    plain = isinstance(url, str) and all("!" <= c <= "~" for c in url)
    if not plain or parts.scheme not in ("http", "https") or not host or parts.query or (
            parts.fragment or parts.username is not None):
        raise InvalidArgumentError(f"{url!r} is no address of a server, as http://HOST:PORT is")
    return parts.scheme, host, port, parts.path.rstrip("/")
