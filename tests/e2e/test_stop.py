# SPDX-License-Identifier: Apache-2.0
"""A stop (SIGTERM) does not wait for a store that says nothing: not in the start, not in an update,
not between two tries, neither at the origin nor at a relay; nor for a segment that is not there."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from e2e_support import version_directory
from live_support import Serving
from store_support import serving_store

NAME = f"e2e-stop-{os.getpid()}"
# libcurl looks about once a second whether to go on.
STOP_S_MAX = 3.0
AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


class Middleman:
    """Before a store: passes requests on until `is_silent` of one is true; that one is never
    answered. Without a store every request meets `answer`, or silence."""

    def __init__(self, is_silent, store=None, answer=None):
        self.is_silent, self.store, self.answer = is_silent, store, answer
        self.asked = threading.Event()  # What is not answered, or not well.
        self.ended = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.held = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while not self.ended:
            with contextlib.suppress(OSError):
                connection = self.listener.accept()[0]
                self.held.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError):
            while head := self._head(connection):
                path = head.split()[1].decode()
                if self.is_silent(path):
                    self.asked.set()
                    if self.answer is None:
                        return
                    connection.sendall(self.answer)
                    continue
                self._pass_on(connection, head)

    @staticmethod
    def _head(connection):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = connection.recv(1)
            if not piece:
                return b""
            head += piece
        return head

    def _pass_on(self, connection, head):
        host, port = self.store.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as store:
            store.sendall(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            while piece := store.recv(65536):
                connection.sendall(piece)
        connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.ended = True
        self.listener.close()
        for connection in self.held:
            connection.close()


@pytest.fixture
def middleman():
    made = []

    def make(*arguments, **fields):
        made.append(Middleman(*arguments, **fields))
        return made[-1]
    yield make
    for one in made:
        one.close()


def seconds_to_stop(process):
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    return time.monotonic() - begun


@contextlib.contextmanager
def starting(segue, *arguments, environment=None):
    """A `segue serve` that has no weights yet."""
    serving = Serving(segue.binary, NAME, "--checkpoint", version_directory("bf16", 0), *arguments,
                      environment=environment)
    serving.segment.remove()
    process = subprocess.Popen(serving.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=serving.environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        serving.segment.remove()


@pytest.mark.parametrize("store", ("http", "s3"))
def test_in_the_start(segue, middleman, store):
    silent = middleman(lambda path: True)
    url = silent.url if store == "http" else "s3://bucket/prefix"
    with starting(segue, "--store", url,
                  environment={**AWS, "AWS_ENDPOINT_URL": silent.url}) as process:
        assert silent.asked.wait(30)
        assert seconds_to_stop(process) < STOP_S_MAX


def test_between_two_tries(segue, middleman):
    busy = middleman(lambda path: True,
                     answer=b"HTTP/1.1 503 Busy\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n")
    with starting(segue, "--store", busy.url) as process:
        assert busy.asked.wait(30)
        time.sleep(0.2)
        assert seconds_to_stop(process) < 1.5


def test_a_payload_in_the_start(segue, trace_stores, middleman):
    with serving_store(segue, trace_stores["bf16"], token=None) as store:
        silent = middleman(lambda path: "/payloads/" in path, store)
        with starting(segue, "--store", silent.url) as process:
            assert silent.asked.wait(30)
            assert seconds_to_stop(process) < STOP_S_MAX


def test_a_relay_in_the_start(segue, trace_stores, middleman):
    with serving_store(segue, trace_stores["bf16"], token=None) as store:
        silent = middleman(lambda path: True)
        with starting(segue, "--store", store, "--relay", "--relay-from", silent.url) as process:
            assert silent.asked.wait(30)
            assert seconds_to_stop(process) < STOP_S_MAX


@pytest.mark.parametrize("way", ("update", "follow"))
def test_in_an_update(segue, tmp_path, middleman, way):
    """Also where a client waits for its end."""
    publish(segue, tmp_path / "store", 1)
    with serving_store(segue, tmp_path / "store", token=None) as store:
        is_closed = threading.Event()
        silent = middleman(lambda path: is_closed.is_set() and "/payloads/" in path, store)
        arguments = ("--store", silent.url, "--checkpoint", version_directory("bf16", 0))
        serving = Serving(segue.binary, NAME, *arguments)
        serving.segment.remove()
        try:
            if way == "follow":
                serving.command += ["--follow", "50"]
            serving.start()
            is_closed.set()
            publish(segue, tmp_path / "store", 2)
            if way == "update":
                threading.Thread(target=swallow, args=(serving,), daemon=True).start()
            assert silent.asked.wait(30)
            assert seconds_to_stop(serving.process) < STOP_S_MAX
            assert serving.process.returncode == 0
        finally:
            serving.process.kill()
            serving.segment.remove()


def publish(segue, store, version):
    segue("publish", "--store", store, "--base", version_directory("bf16", version - 1),
          "--target", version_directory("bf16", version))


def swallow(serving):
    with contextlib.suppress(OSError):
        serving.post("/update_weights_from_gpu_delta", target_version=2)


def test_an_engine_that_waits_for_a_segment(segue):
    process = segue.start("engine", "--name", NAME + "-none")
    time.sleep(0.5)
    assert process.poll() is None
    assert seconds_to_stop(process) < 1.0
    assert process.returncode == 0
