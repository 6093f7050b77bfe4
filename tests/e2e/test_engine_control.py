# SPDX-License-Identifier: Apache-2.0
"""`segue serve` in front of an engine with HTTP control of its own (cases E2, E3): a stub that
pauses, flushes, takes the version's label and continues as SGLang does, and refuses to on demand.
"""

import contextlib
import http.server
import json
import os
import subprocess
import threading
import time

import pytest

from e2e_support import version_directory
from live_support import Serving, serving

NAME = f"e2e-engine-{os.getpid()}"


class StubEngine:
    """Eight running requests, three in the queue: a flush is refused until they are held."""

    def __init__(self):
        self.requests = []
        self.paused = False
        self.version = ""
        self.flush_refusals = 0
        self.drips = False  # Answers with a byte now and then, for ever.
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                size = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(size) or b"{}")
                code, answer = stub.answer(self.path, body)
                if stub.drips:
                    return self.drip()
                data = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def drip(self):
                self.close_connection = True
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
                with contextlib.suppress(OSError):
                    while True:
                        self.wfile.write(b"x")
                        time.sleep(0.05)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path, body):
        self.requests.append(path)
        if path == "/pause_generation":
            self.paused = True
        elif path == "/continue_generation":
            self.paused = False
        elif path == "/update_weight_version":
            self.version = body["new_version"]
        elif path == "/flush_cache":
            if not self.paused or self.flush_refusals > 0:
                self.flush_refusals -= 1
                return 400, {"message": "8 running, 3 queued requests"}
        else:
            return 404, {}
        return 200, {"success": True}

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def engine():
    stub = StubEngine()
    yield stub
    stub.close()


@pytest.fixture
def receiver(segue, tmp_path, engine):
    store = tmp_path / "store"

    def publish(version):
        segue("publish", "--store", store, "--base", version_directory("bf16", version - 1),
              "--target", version_directory("bf16", version))

    publish(1)
    with serving(segue, NAME, "--store", store, "--checkpoint", version_directory("bf16", 0),
                 "--engine", "sglang", "--engine-url", engine.url) as receiver:
        receiver.publish = publish
        yield receiver


def test_engine_is_paused_flushed_told_and_continued(receiver, engine):
    assert engine.version == "default/1" and not engine.paused
    engine.requests.clear()
    receiver.publish(2)
    engine.flush_refusals = 2
    status, answer = receiver.post("/update_weights_from_gpu_delta", target_version=2)
    assert status == 200, answer
    assert answer["participants"][0]["flushed_caches"] == ["kv"]
    assert engine.requests == ["/pause_generation"] + 3 * ["/flush_cache"] + [
        "/update_weight_version", "/continue_generation"]
    assert engine.version == "default/2" and not engine.paused


def test_applied_but_not_flushed_stays_paused(receiver, engine):
    receiver.publish(2)
    engine.flush_refusals = 1000
    status, answer = receiver.post("/update_weights_from_gpu_delta", target_version=2)
    assert status == 409 and "caches stay" in answer["message"]
    receipt = answer["participants"][0]
    assert receipt["state"] == "APPLIED" and receipt["version"] == 2
    assert engine.paused and engine.version == "default/1"
    session = receipt["session_id"]
    status, answer = receiver.post("/resume_gpu_delta", session_id=session)
    assert status == 409 and engine.paused
    engine.flush_refusals = 0
    assert receiver.post("/apply_gpu_delta", session_id=session)[0] == 200
    assert receiver.post("/resume_gpu_delta", session_id=session)[0] == 200
    assert not engine.paused and engine.version == "default/2"


def test_kept_pause(receiver, engine):
    receiver.publish(2)
    assert receiver.post("/prepare_gpu_delta", session_id="a")[0] == 200
    while receiver.post("/get_gpu_delta_status")[1]["participants"][0]["state"] == "PREPARING":
        pass
    assert receiver.post("/apply_gpu_delta", session_id="a", abort_all_requests=True)[0] == 200
    assert receiver.post("/resume_gpu_delta", session_id="a", keep_pause=True)[0] == 200
    assert engine.paused and engine.version == "default/2"


def seconds_to_stop(receiver):
    began = time.monotonic()
    receiver.stop()
    return time.monotonic() - began


def test_sigterm_does_not_wait_for_an_engine_that_drips(receiver, engine):
    """Each request has 30 s and five tries; a receiver that is to end takes about two seconds."""
    receiver.publish(2)
    engine.requests.clear()
    engine.drips = True
    answers = []
    update = threading.Thread(target=lambda: answers.append(
        receiver.post("/update_weights_from_gpu_delta", target_version=2)))
    update.start()
    while not engine.requests:
        time.sleep(0.01)
    assert seconds_to_stop(receiver) < 6
    update.join()
    assert answers[0][0] == 409 and answers[0][1]["code"] == "unavailable"


def test_sigterm_in_the_start_does_not_wait_for_the_engine(segue, tmp_path, engine):
    store = tmp_path / "store"
    segue("publish", "--store", store, "--base", version_directory("bf16", 0),
          "--target", version_directory("bf16", 1))
    engine.drips = True
    receiver = Serving(segue.binary, NAME, "--store", store, "--checkpoint",
                       version_directory("bf16", 0), "--engine", "sglang",
                       "--engine-url", engine.url)
    receiver.process = subprocess.Popen(receiver.command, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
    try:
        while not engine.requests:
            time.sleep(0.01)
        assert seconds_to_stop(receiver) < 6
    finally:
        receiver.segment.remove()


def test_an_address_that_ends_in_a_slash(segue, tmp_path, engine):
    segue("publish", "--store", tmp_path / "store", "--base", version_directory("bf16", 0),
          "--target", version_directory("bf16", 1))
    with serving(segue, NAME, "--store", tmp_path / "store", "--checkpoint",
                 version_directory("bf16", 0), "--engine", "sglang", "--engine-url",
                 engine.url + "/"):
        assert engine.version == "default/1" and not engine.paused


def test_engine_that_is_not_there_yet(segue, tmp_path):
    store = tmp_path / "store"
    segue("publish", "--store", store, "--base", version_directory("bf16", 0),
          "--target", version_directory("bf16", 1))
    with serving(segue, NAME, "--store", store, "--checkpoint", version_directory("bf16", 0),
                 "--engine", "vllm", "--engine-url", "http://127.0.0.1:9") as receiver:
        assert receiver.version() == 1
        assert receiver.request("/healthz")[0] == 200


@pytest.mark.parametrize("arguments", [("--engine", "tgi", "--engine-url", "http://h:1"),
                                       ("--engine", "vllm", "--engine-url", "h:1"),
                                       ("--engine", "vllm"), ("--engine-url", "http://h:1")])
def test_bad_options(segue, tmp_path, arguments):
    segue.fails("invalid_argument", "serve", "--store", tmp_path, "--checkpoint",
                version_directory("bf16", 0),
                "--name", NAME, *arguments)
