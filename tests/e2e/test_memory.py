# SPDX-License-Identifier: Apache-2.0
"""A server whose memory runs out under many requests at once refuses some of them, and lives."""

import contextlib
import os
import threading
import urllib.request

import pytest

from e2e_support import version_directory
from live_support import serving

NAME = f"e2e-memory-{os.getpid()}"
CLIENTS = 80
PATHS = ("/healthz", "/versions", "/metrics", "/openapi.json", "/update_weights_from_gpu_delta",
         "/rebuild", "/get_gpu_delta_info")


def ask(server, first, answered):
    for turn in range(6):
        path = PATHS[(first + turn) % len(PATHS)]
        body = {} if path in PATHS[4:] else None
        with contextlib.suppress(OSError, urllib.request.http.client.HTTPException):
            answered.append(server.request(path, body, timeout=60)[0])


@pytest.mark.parametrize("mebibytes", (300, 400, 600))
def test_many_requests(segue, trace_stores, tmp_path, mebibytes):
    limited = tmp_path / "segue-limited"
    limited.write_text(f'#!/bin/sh\nexec prlimit --as={mebibytes << 20} "{segue.binary}" "$@"\n')
    limited.chmod(0o755)
    arguments = ("--store", trace_stores["bf16"], "--checkpoint", version_directory("bf16", 0),
                 "--version", 1)
    whole = segue.binary
    try:
        segue.binary = str(limited)
        with serving(segue, NAME, *arguments) as server:
            answered = []
            clients = [threading.Thread(target=ask, args=(server, first, answered))
                       for first in range(CLIENTS)]
            for client in clients:
                client.start()
            for client in clients:
                client.join()
            assert server.process.poll() is None, server.process.stderr.read()
            assert set(answered) <= {200, 409, 503} and answered.count(200) > CLIENTS
            # It goes on answering; whether there is memory for a rebuild yet is the limit's affair.
            status, answer = server.post("/rebuild", target_version=2)
            assert status == 200 or answer["code"] == "resource_exhausted", answer
            assert status != 200 or server.version() == 2
            assert server.stop() == 0
    finally:
        segue.binary = whole
