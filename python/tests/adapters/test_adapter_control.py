# SPDX-License-Identifier: Apache-2.0
"""Control of an engine over HTTP against servers that misbehave: what is no answer is one error of
Segue's within the time that was given, no token goes elsewhere, and a version is labelled and the
engine goes on only where every rank says that it holds it."""

import contextlib
import http.server
import json
import threading
import time

import pytest
from http_support import serving

from segue import InvalidArgumentError, TaintedError, UnavailableError, UnsupportedError
from segue.adapters.control import NotFinishedError, RefusedError
from segue.adapters.sglang_http import SGLangControl
from segue.adapters.vllm_http import VLLMControl

TOKEN = "a-secret"


@contextlib.contextmanager
def raw_server(answer):
    """`answer(handler)` writes what it likes; yields (URL, the tokens that were seen)."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers.get("Authorization"))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with contextlib.suppress(OSError):
                answer(self)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}", seen
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def say(text, code=200, **headers):
    def answer(handler):
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(text)

    return answer


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(code):
    with raw_server(say(b'{"results": [{"state": "IDLE"}]}')) as (other, seen):
        with raw_server(say(b"", code, Location=other + "/x")) as (url, here):
            with pytest.raises(UnavailableError, match=f"{code}.*redirects are not followed"):
                VLLMControl(url, token=TOKEN).status()
            assert here == [f"Bearer {TOKEN}"] and seen == []


@pytest.mark.parametrize("text", [
    b"[]", b"7", b"null", b"{", b"\xff", b'{"results":' + b"[" * 200_000, b'{"results": [{}]}',
    b'{"results": [{"state": 7}]}', b'{"results": [{"state": "IDLE", "version": true}]}',
    b'{"results": [{"state": "IDLE"}, 3]}'])
def test_answers_of_another_form(text):
    with raw_server(say(text)) as (url, _):
        with pytest.raises(UnavailableError):
            VLLMControl(url).status()


@pytest.mark.parametrize("text", [
    "{}", "[" * 200_000, '{"state": 3}', "[]", "nothing"])
def test_statuses_of_another_form_from_sglang(text):
    body = json.dumps({"success": True, "message": "segue:" + text}).encode()
    with raw_server(say(body)) as (url, _):
        with pytest.raises(UnavailableError):
            SGLangControl(url).status()


def drip(handler):
    for _ in range(100):
        handler.wfile.write(b" ")
        time.sleep(0.1)


def drip_a_body(handler):
    handler.send_response(200)
    handler.end_headers()
    drip(handler)


def drip_a_header(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    drip(handler)


@pytest.mark.parametrize("answer", [drip_a_body, drip_a_header, lambda _: time.sleep(10)])
def test_a_slow_answer_ends_in_time(answer):
    with raw_server(answer) as (url, _):
        begin = time.monotonic()
        with pytest.raises(UnavailableError, match="within 0.5 s"):
            VLLMControl(url, timeout_s=0.5).status()
        assert time.monotonic() - begin < 5


def test_an_answer_without_end(monkeypatch):
    monkeypatch.setattr("segue.adapters.http_call.ANSWER_BYTES_MAX", 1 << 20)

    def endless(handler):
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b" " * (1 << 16))

    with raw_server(endless) as (url, _):
        with pytest.raises(UnavailableError, match="longer than 1048576 bytes"):
            VLLMControl(url).status()


@pytest.mark.parametrize("options", [
    {"url": "file:///etc/passwd"}, {"url": "ftp://host"}, {"url": "host:80"}, {"url": ""},
    {"url": "http://user:word@host"}, {"url": "http://host:port"}, {"url": "http://host/\r\nX: y"},
    {"url": "http://host?x"}, {"url": None}, {"token": "a\r\nX: y"}, {"token": "\xe9"},
    {"token": b"x"}, {"timeout_s": 0}, {"timeout_s": -1}, {"timeout_s": float("nan")},
    {"timeout_s": float("inf")}, {"timeout_s": "2"}, {"timeout_s": True}])
def test_arguments_that_say_nothing(options):
    with pytest.raises(InvalidArgumentError):
        VLLMControl(**{"url": "http://127.0.0.1:1", **options})


# --- what the ranks hold -----------------------------------------------------------------------


def status(rank, version, state="RESUMED", ready=True, target=7):
    return {"rank": rank, "version": version, "state": state, "ready": ready, "target": target,
            "message": "as it is"}


@contextlib.contextmanager
def vllm(applied, prepared=None, opened=None, code=200):
    """vLLM whose ranks answer so; yields (control, paths that were asked)."""
    log = []
    answers = {"prepare": prepared or [status(0, 6, "PREPARED"), status(1, 6, "PREPARED")],
               "apply": applied, None: opened or applied}

    def answer(path, body):
        log.append(path)
        if path != "/collective_rpc":
            return 200, {}
        action = body["kwargs"].get("action")
        return (code if action == "apply" else 200), {"results": answers[action]}

    with serving(answer) as url:
        yield VLLMControl(url, timeout_s=10), log


def test_all_ranks_hold_what_was_asked_for():
    with vllm([status(1, 7), status(0, 7)]) as (driver, log):
        assert driver.update(7)["rank"] == 0
        assert log[-2:] == ["/update_weight_version", "/resume"]


@pytest.mark.parametrize("ranks", [
    [status(0, 6), status(1, 6)], [status(0, 7), status(1, 6)], [status(0, 6), status(1, 7)],
    [status(0, 7), status(1, 7, ready=False)], [{"state": "RESUMED"}],
    [status(0, 7), {"state": "CLOSED", "ready": False}]])
def test_a_rank_that_holds_another_version_keeps_the_engine_paused(ranks):
    with vllm(ranks) as (driver, log):
        for call in (driver.update, driver.finish):
            with pytest.raises(NotFinishedError, match="stays paused"):
                call(7)
        assert "/update_weight_version" not in log and "/resume" not in log


@pytest.mark.parametrize("code", [200, 500])
def test_a_rank_that_is_poisoned_keeps_the_engine_paused(code):
    poisoned = [status(0, 7), status(1, 6, "POISONED", ready=False)]
    with vllm(poisoned, code=code) as (driver, log):
        with pytest.raises(TaintedError, match="stays paused"):
            driver.update(7)
        assert "/update_weight_version" not in log and "/resume" not in log
        assert driver.status()["rank"] == 1


def test_a_failed_apply_after_which_one_rank_has_moved():
    with vllm([status(0, 6), status(1, 7)], code=500) as (driver, log):
        with pytest.raises(NotFinishedError):
            driver.update(7)
        assert "/resume" not in log
    with vllm([status(0, 6), status(1, 6)], code=500) as (driver, log):
        with pytest.raises(RefusedError, match="version 6 is held"):
            driver.update(7)
        assert log[-1] == "/resume"


def test_ranks_that_prepare_or_open_different_versions():
    with vllm([], prepared=[status(0, 6, target=7), status(1, 6, target=8)]) as (driver, log):
        with pytest.raises(UnavailableError, match="prepare different versions"):
            driver.update()
    with vllm([], prepared=[status(0, 6, target=8)]) as (driver, log):
        with pytest.raises(UnavailableError, match="asked for version 7 and prepares 8"):
            driver.update(7)
        assert "/resume" not in log
    with vllm([status(0, 6), status(1, 7)]) as (driver, log):
        with pytest.raises(UnavailableError, match="hold different versions"):
            driver.open(store="dir:/x")
        assert "/update_weight_version" not in log
    ended = [status(0, 6, "PREPARED"), status(1, 6, "FAILED")]
    with vllm([], prepared=ended) as (driver, log):
        with pytest.raises(RefusedError, match="nothing was staged: as it is"):
            driver.update(7)


@pytest.mark.parametrize("text", ["Success", "segue:" + json.dumps(status(0, 6)), "segue:{}"])
def test_sglang_that_answers_something_else_to_an_apply(text):
    pytest.importorskip("torch", reason="commands for SGLang are made with torch")
    staged = "segue:" + json.dumps(status(0, 6, "PREPARED"))
    log, answers = [], [{"success": True, "message": staged}, {"success": True, "message": text}]

    def answer(path, _):
        log.append(path)
        return 200, answers.pop(0) if path == "/update_weights_from_tensor" else {}

    with serving(answer) as url:
        with pytest.raises(NotFinishedError):
            SGLangControl(url).update(7)
    assert log[-1] == "/update_weights_from_tensor"
    with pytest.raises(UnsupportedError, match="in place"):
        SGLangControl(url, mode="in_place")._apply(7, "7", True)
