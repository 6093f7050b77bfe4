# SPDX-License-Identifier: Apache-2.0
"""A receiver over a store whose server says nothing any more: Ctrl-C, abort() and close() end what
waits for it within seconds, and a receiver that lives on takes the next version."""

import http.server
import json
import pathlib
import re
import signal
import threading
import time

import pytest

import segue
from python_support import bound, copy_of, make_model, same_bytes, step

# libcurl looks about once a second whether to go on.
END_S_MAX = 3.0


class FallingSilent(http.server.ThreadingHTTPServer):
    """Serves a directory as `segue store` does, but for paths with `silent` in them."""

    daemon_threads = True

    def __init__(self, root):
        super().__init__(("127.0.0.1", 0), Answer)
        self.root = pathlib.Path(root)
        self.silent = None
        self.asked = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def fall_silent_at(self, part):
        self.asked.clear()
        self.silent = part


class Answer(http.server.BaseHTTPRequestHandler):
    """One request of it."""

    def log_message(self, *_):
        """Tests' output has no place for it."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        while self.server.silent is not None and self.server.silent in self.path:
            self.server.asked.set()
            time.sleep(0.01)
        place = self.server.root / self.path.strip("/")
        if self.path.endswith("/"):
            entries = sorted(place.iterdir()) if place.is_dir() else []
            named = [entry for entry in entries if not entry.name.startswith(".")]
            self.answer(200, json.dumps({
                "objects": [entry.name for entry in named if entry.is_file()],
                "folders": [entry.name for entry in named if entry.is_dir()]}).encode())
        elif not place.is_file():
            self.answer(404, b"")
        else:
            self.answer_object(place.read_bytes())

    def answer_object(self, body):
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not part:
            self.answer(200, body)
            return
        first, last = int(part[1]), int(part[2] or len(body) - 1)
        self.answer(206, body[first:last + 1], f"bytes {first}-{last}/{len(body)}")

    def answer(self, code, body, part=None):
        try:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            if part is not None:
                self.send_header("Content-Range", part)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)
        except OSError:  # Who asked has gone.
            pass


@pytest.fixture
def server(tmp_path):
    made = FallingSilent(tmp_path / "store")
    yield made
    made.fall_silent_at(None)
    made.shutdown()
    made.server_close()


@pytest.fixture
def trainer(tmp_path):
    model = make_model()
    with segue.Publisher(str(tmp_path / "store"), base=model) as publisher:
        def advance(seed):
            step(model, seed)
            publisher.publish(model)
            return model
        advance(1)
        yield advance


@pytest.fixture(autouse=True)
def ctrl_c():
    """Below a shell's background job SIGINT is ignored, which children inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def after_silence(server, then):
    """Calls `then()` in another thread, once something waits for the server. The moment of it."""
    moment = []

    def wait():
        assert server.asked.wait(30)
        time.sleep(0.1)
        moment.append(time.monotonic())
        then()
    threading.Thread(target=wait, daemon=True).start()
    return moment


def interrupt():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.mark.parametrize("part", ("/payloads/", "/versions"))
@pytest.mark.parametrize("way", ("update", "prepare"))
def test_ctrl_c_ends_an_update(server, trainer, way, part):
    live = copy_of(make_model())
    with bound(server.url, live) as receiver:
        receiver.update()
        newest = trainer(2)
        server.fall_silent_at(part)
        moment = after_silence(server, interrupt)
        with pytest.raises(KeyboardInterrupt):
            if way == "update":
                receiver.update()
            else:
                receiver.prepare(session="quiet")
                receiver.wait_prepared()
        assert time.monotonic() - moment[0] < END_S_MAX
        assert receiver.status.state == "ABORTED" and receiver.status.ready
        server.fall_silent_at(None)
        receiver.update()
        assert same_bytes(live, newest)


def test_ctrl_c_ends_a_look_and_an_opening(server, trainer):
    live = copy_of(make_model())
    receiver = bound(server.url, live)
    server.fall_silent_at("/")
    moment = after_silence(server, interrupt)
    with pytest.raises(KeyboardInterrupt):
        receiver.open()
    assert time.monotonic() - moment[0] < END_S_MAX
    server.fall_silent_at(None)
    assert receiver.versions() == [1]
    server.fall_silent_at("/versions")
    moment = after_silence(server, interrupt)
    with pytest.raises(KeyboardInterrupt):
        receiver.versions()
    assert time.monotonic() - moment[0] < END_S_MAX
    server.fall_silent_at(None)
    assert receiver.update().target_version == 1
    receiver.close()


def test_ctrl_c_ends_a_rebuild_that_has_not_begun_to_load(server, trainer, tmp_path):
    with bound(server.url, copy_of(make_model()), checkpoint=tmp_path) as receiver:
        receiver.update()
        server.fall_silent_at("/versions")
        moment = after_silence(server, interrupt)
        with pytest.raises(KeyboardInterrupt):
            receiver.rebuild()
        assert time.monotonic() - moment[0] < END_S_MAX
        assert receiver.status.ready
        server.fall_silent_at(None)
        assert receiver.update().target_version == 1


@pytest.mark.parametrize("part", ("/payloads/", "/versions"))
def test_an_abort_from_another_thread_ends_an_update(server, trainer, part):
    with bound(server.url, copy_of(make_model())) as receiver:
        receiver.update()
        trainer(2)
        server.fall_silent_at(part)
        moment = after_silence(server, lambda: receiver.abort(receiver.status.session))
        with pytest.raises(segue.UnavailableError):
            receiver.update()
        assert time.monotonic() - moment[0] < END_S_MAX
        server.fall_silent_at(None)
        assert receiver.update().target_version == 2


@pytest.mark.parametrize("waits_in", ("update", "versions"))
def test_a_close_ends_what_other_threads_wait_for(server, trainer, waits_in):
    receiver = bound(server.url, copy_of(make_model()))
    receiver.update()
    trainer(2)
    server.fall_silent_at("/payloads/" if waits_in == "update" else "/versions")
    raised = []

    def wait():
        try:
            getattr(receiver, waits_in)()
        except segue.Error as error:
            raised.append(error)
    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    assert server.asked.wait(30)
    begun = time.monotonic()
    receiver.close()
    assert time.monotonic() - begun < END_S_MAX
    waiter.join(END_S_MAX)
    assert [type(error) for error in raised] == [segue.UnavailableError]


@pytest.mark.parametrize("part", ("/payloads/", "/versions"))
def test_a_close_ends_a_follower(server, trainer, part):
    receiver = bound(server.url, copy_of(make_model()))
    receiver.update()
    trainer(2)
    server.fall_silent_at(part)
    receiver.follow(0.01)
    assert server.asked.wait(30)
    begun = time.monotonic()
    receiver.close()
    assert time.monotonic() - begun < END_S_MAX
