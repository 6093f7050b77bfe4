# SPDX-License-Identifier: Apache-2.0
"""`segue serve`: endpoints, following, readiness and security, on the recorded trace. What engines
see is read from the shared memory by tools/live_segment.py, which follows the document alone."""

import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest

from e2e_support import version_directory
from live_support import Serving, check_schema, serving

from live_segment import read_checkpoint

NAME = f"e2e-{os.getpid()}"


def live_is(receiver, version, name="bf16"):
    return receiver.segment.tensors() == read_checkpoint(version_directory(name, version))


@pytest.fixture
def store(segue, tmp_path):
    """A store with versions 1 and 2 of the bf16 trace."""
    for version in (1, 2):
        publish(segue, tmp_path / "store", version)
    return tmp_path / "store"


def publish(segue, store, version):
    segue("publish", "--store", store, "--base", version_directory("bf16", version - 1),
          "--target", version_directory("bf16", version))


def at(store, version=0):
    return ("--store", store, "--checkpoint", version_directory("bf16", version))


def test_prepare_apply_resume(segue, store):
    with serving(segue, NAME, *at(store)) as receiver:
        assert receiver.ready["version"] == 2 and live_is(receiver, 2)
        publish(segue, store, 3)
        status, answer = receiver.post("/prepare_gpu_delta", session_id="a", target_version=3,
                                       stream_id="default", base_version=2)
        assert status == 200 and answer["success"]
        deadline = time.monotonic() + 30
        while state(receiver) == "PREPARING" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert state(receiver) == "PREPARED" and live_is(receiver, 2)
        assert receiver.post("/apply_gpu_delta", session_id="b")[0] == 409
        assert receiver.post("/prepare_gpu_delta", session_id="b")[0] == 409
        assert receiver.post("/apply_gpu_delta", session_id="a")[0] == 200
        assert receiver.segment.gate_is_closed()
        assert receiver.post("/abort_gpu_delta", session_id="a")[0] == 409
        status, answer = receiver.post("/resume_gpu_delta", session_id="a")
        assert status == 200 and not receiver.segment.gate_is_closed()
        receipt = answer["participants"][0]
        assert receipt["state"] == "RESUMED" and receipt["version"] == 3
        assert receipt["stream_id"] == "default" and receipt["start_ticks"] > 0
        timing = receipt["scheduler_timing"]
        assert timing["pause_started_ns"] < timing["reader_fence_completed_ns"]
        assert timing["reader_fence_completed_ns"] < timing["resumed_ns"]
        assert live_is(receiver, 3)
        assert receiver.request("/clear_gpu_delta_state", method="POST")[0] == 200
        assert state(receiver) == "IDLE"


def state(receiver):
    return receiver.post("/get_gpu_delta_status")[1]["participants"][0]["state"]


def test_one_shot_and_its_retry(segue, store):  # case E4
    with serving(segue, NAME, *at(store)) as receiver:
        publish(segue, store, 3)
        path = "/some/where/default/versions/0000000003.json"
        for _ in range(2):
            status, answer = receiver.post("/update_weights_from_gpu_delta", manifest_path=path)
            assert status == 200 and answer["participants"][0]["version"] == 3
        assert live_is(receiver, 3)
        status, answer = receiver.post("/update_weights_from_gpu_delta", target_version=9)
        assert status == 409 and answer["code"] == "not_found"
        status, answer = receiver.post("/update_weights_from_gpu_delta", target_version=2,
                                       manifest_path=path)
        assert status == 409 and answer["code"] == "invalid_argument"


def test_follow_with_an_engine(segue, store):
    with serving(segue, NAME, *at(store), "--follow", 10) as receiver:
        engine = segue.start("engine", "--name", NAME, "--until", 6, "--json")
        for version in range(3, 7):
            publish(segue, store, version)
        report = json.loads(engine.communicate(timeout=60)[0])
        assert engine.returncode == 0
        seen = [entry["version"] for entry in report["versions"]]
        assert seen == sorted(seen) and seen[-1] == 6
        assert live_is(receiver, 6)


def test_rebuild_to_an_older_version(segue, store):
    with serving(segue, NAME, *at(store)) as receiver:
        assert receiver.post("/rebuild", target_version=1)[0] == 200
        assert receiver.version() == 1 and live_is(receiver, 1)
        assert receiver.request("/rebuild", method="POST")[0] == 200
        assert receiver.version() == 2 and live_is(receiver, 2)


def pauses_of(receiver):
    name = "segue_pause_seconds_count{"
    line, = (line for line in receiver.request("/metrics")[1].splitlines() if line.startswith(name))
    return int(line.split()[-1])


def test_rebuilds_are_pauses(segue, store):
    """One that is asked for, and that of a start over weights which served."""
    with serving(segue, NAME, *at(store)) as receiver:
        assert receiver.ready["pause_s"] == 0 and pauses_of(receiver) == 0
        assert receiver.post("/rebuild")[0] == 200
        assert pauses_of(receiver) == 1
        assert receiver.stop() == 0
        again = Serving(segue.binary, NAME, *at(store), "--rebuild").start()
        try:
            assert again.ready["version"] == 2 and 0 < again.ready["pause_s"] < 10
            assert pauses_of(again) == 1
        finally:
            again.kill()


def test_a_rebuild_to_an_older_version_does_not_last_while_following(segue, store):
    with serving(segue, NAME, *at(store), "--follow", 50) as receiver:
        assert receiver.post("/rebuild", target_version=1)[0] == 200
        deadline = time.monotonic() + 30
        while receiver.version() != 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert receiver.version() == 2 and live_is(receiver, 2)


def test_the_same_refusal_again_is_told(segue, store):
    with serving(segue, NAME, *at(store)) as receiver:
        publish(segue, store, 3)
        for payload in (store / "default/payloads/0000000003").iterdir():
            payload.unlink()
        for _ in range(3):
            assert receiver.post("/update_weights_from_gpu_delta")[0] == 409
            time.sleep(0.5)
        receiver.process.terminate()
        errors = receiver.process.communicate(timeout=30)[1].splitlines()
        told = [line for line in errors if "payloads/0000000003" in line]
        again = [line for line in told if "more failure" in line]
        # Each is told by itself or counted; how they fall between two looks is chance.
        assert len(told) - len(again) + sum(int(re.search(r"(\d+) more", line)[1])
                                            for line in again) == 3, errors


def test_what_it_cannot_do_is_refused(segue, store):  # case E3: never a silent no-op
    with serving(segue, NAME, *at(store)) as receiver:
        for body in ({"abort_all_requests": True}, {"session_id": "a", "keep_pause": True}):
            path = "/resume_gpu_delta" if "keep_pause" in body else "/update_weights_from_gpu_delta"
            status, answer = receiver.request(path, body)
            assert status == 409 and answer["code"] == "unsupported"


def test_bad_requests(segue, store):
    with serving(segue, NAME, *at(store)) as receiver:
        assert receiver.post("/nothing")[0] == 404
        assert receiver.request("/prepare_gpu_delta", [1])[0] == 400
        assert receiver.post("/prepare_gpu_delta", session_id=3)[0] == 400
        assert receiver.post("/prepare_gpu_delta", target_version=-1)[0] == 400
        assert receiver.post("/prepare_gpu_delta", target_version="3")[0] == 400
        publish(segue, store, 3)
        status, answer = receiver.post("/update_weights_from_gpu_delta", target_versoin=1)
        assert status == 400 and "'target_versoin'" in answer["message"]
        assert "target_version" in answer["message"]  # What there is.
        assert receiver.post("/clear_gpu_delta_state", session_id="a")[0] == 400
        assert receiver.post("/get_gpu_delta_info", engine_id="other")[0] == 409
        assert receiver.post("/get_gpu_delta_status", session_id="never")[0] == 409
        assert receiver.version() == 2


def test_openapi_is_true(segue, store):
    with serving(segue, NAME, *at(store)) as receiver:
        status, document = receiver.request("/openapi.json")
        assert status == 200 and document["openapi"].startswith("3.1")
        assert len(document["paths"]) == 14
        assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                posts = {"400", "409", "413"} if method == "post" else set()
                known = {"200", "401"} | posts
                assert known <= set(operation["responses"]), path
                body = {} if method == "post" else None
                status, answer = receiver.request(path, body)
                schema = operation["responses"][str(status)]["content"]
                check_schema(answer, list(schema.values())[0]["schema"], document, path)
        schema = document["paths"]["/rebuild"]["post"]["requestBody"]["content"]
        assert schema["application/json"]["schema"]["additionalProperties"] is False
        assert "409" in document["paths"]["/versions"]["get"]["responses"]


def test_metrics_are_prometheus(segue, store):
    promtool = shutil.which("promtool")
    assert promtool, "packages.txt names prometheus, whose promtool reads the metrics"
    with serving(segue, NAME, *at(store)) as receiver:
        status, text = receiver.request("/metrics")
        assert status == 200 and 'segue_version{engine="' in text
        done = subprocess.run([promtool, "check", "metrics"], input=text, text=True,
                              capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_start_that_fails_leaves_no_memory(segue, store):
    for more in ((), ("--remove",)):  # The checkpoint is no version of the lineage.
        done = subprocess.run([segue.binary, "serve", "--name", NAME, *map(str, at(store, 5)),
                               *more], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 4, done.stderr
        assert not list(pathlib.Path("/dev/shm").glob(f"segue-{NAME}*"))


def test_starts_at_a_version_and_stays(segue, store):
    with serving(segue, NAME, *at(store), "--version", 1) as receiver:
        assert receiver.ready["version"] == 1 and live_is(receiver, 1)
        publish(segue, store, 3)
        assert receiver.post("/update_weights_from_gpu_delta", target_version=3)[0] == 200
        assert receiver.stop() == 0
        # Segue only goes forward.
        message = segue.fails("version_mismatch", "serve", "--name", NAME, *at(store),
                              "--version", 2)
        assert "rebuild" in message
    segue.fails("invalid_argument", "serve", "--name", NAME, *at(store), "--version", 1, "--follow",
                100)


def test_each_update_is_told(segue, store):
    with serving(segue, NAME, *at(store), "--follow", 50) as receiver:
        publish(segue, store, 3)
        line = json.loads(receiver.process.stdout.readline())
        assert (line["base_version"], line["version"]) == (2, 3)
        assert line["payload_bytes"] > 0 and 0 < line["pause_s"] < 10


def test_a_publisher_waits_for_engines(segue, store):
    with serving(segue, NAME, *at(store)) as receiver:
        step = ("publish", "--store", store, "--base", version_directory("bf16", 2), "--target",
                version_directory("bf16", 3), "--wait-for", receiver.url, "--wait-timeout")
        message = segue.fails("unavailable", *step, 0.3)
        assert receiver.url in message and "version 2" in message
        assert receiver.post("/update_weights_from_gpu_delta")[0] == 200
        assert segue(*step, 5)["already_published"]  # It is there, and now the engine has it too.
        segue.fails("invalid_argument", *step[:-2], "localhost:1")


def test_an_engine_that_waits_can_be_stopped(segue, store):
    with serving(segue, NAME, *at(store)) as receiver:
        with open(f"/dev/shm/segue-{NAME}", "r+b") as segment:
            segment.seek(64)  # docs/protocol.md, section 6: the gate's word.
            segment.write(b"\1")
        engine = subprocess.Popen([segue.binary, "engine", "--name", NAME, "--json"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(1)
        engine.terminate()
        output, _ = engine.communicate(timeout=5)
        assert engine.returncode == 0 and json.loads(output)["steps"] == 0


def test_token(segue, store):
    done = subprocess.run([segue.binary, "serve", "--name", NAME, *map(str, at(store)),
                           "--listen", "0.0.0.0:0"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "needs a token" in done.stderr
    with serving(segue, NAME, *at(store), environment={"SEGUE_TOKEN": "secret"}) as receiver:
        assert receiver.request("/healthz")[0] == 200
        for wrong in ("Bearer secre", "Bearer secret2", "Bearer Secret", "secret", ""):
            for path in ("/healthz", "/metrics", "/nothing"):
                assert receiver.request(path, headers={"Authorization": wrong})[0] == 401


def test_large_slow_and_lying_bodies(segue, store):  # case G8
    with serving(segue, NAME, *at(store)) as receiver:
        host, port = receiver.url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        connection.putrequest("POST", "/prepare_gpu_delta")
        connection.putheader("Content-Length", str((1 << 20) + 1))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
        slow = [socket.create_connection((host, int(port))) for _ in range(20)]
        for one in slow:
            one.sendall(b"POST /prepare_gpu_delta HTTP/1.1\r\nContent-Length: 500\r\n\r\n{")
        started = time.monotonic()
        assert receiver.version() == 2
        publish(segue, store, 3)
        assert receiver.post("/update_weights_from_gpu_delta")[0] == 200
        assert time.monotonic() - started < 8, "slow clients held others up"
        for one in slow:
            one.close()
        assert receiver.version() == 3


def test_a_body_is_json_whatever_it_is_called(segue, store):  # As curl -d sends it.
    with serving(segue, NAME, *at(store)) as receiver:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        for size in (100, 9_000, 1_000_000):
            body = {"session_id": "a", "participants": ["x" * size]}
            status, answer = receiver.request("/prepare_gpu_delta", body, headers=form)
            assert status == 200 and answer["success"], answer
            assert receiver.post("/abort_gpu_delta", session_id="a")[0] == 200
            receiver.post("/clear_gpu_delta_state")
        multipart = {"Content-Type": "multipart/form-data; boundary=x"}
        status, answer = receiver.request("/prepare_gpu_delta", {}, headers=multipart)
        assert status == 400 and "JSON" in answer["message"]


def test_dribbling_clients_are_cut_off(segue, store):
    with serving(segue, NAME, *at(store)) as receiver:
        host, port = receiver.url.removeprefix("http://").split(":")
        heads = (b"GET /healthz HTTP/1.1\r\n",
                 b"POST /get_gpu_delta_status HTTP/1.1\r\nContent-Length: 99\r\n\r\n")
        clients = [socket.create_connection((host, int(port))) for _ in range(300)]
        for client, head in zip(clients, heads * 150):
            client.sendall(head)
        pieces, ended = (b"A: b\r\n", b" "), [None, None]
        started = time.monotonic()
        while None in ended and time.monotonic() - started < 20:
            assert receiver.version() == 2
            for which, client in enumerate(clients[-2:]):
                client.settimeout(0.05)
                try:
                    client.sendall(pieces[which])
                    ended[which] = ended[which] or client.recv(100)
                except TimeoutError:
                    pass
            time.sleep(0.4)
        assert 9 < time.monotonic() - started < 15
        assert all(answer.startswith(b"HTTP/1.1 408") for answer in ended), ended
        for client in clients:
            client.close()


def test_two_updates_at_once(segue, store):  # case E1
    with serving(segue, NAME, *at(store, 0)) as receiver:
        for version in (3, 4):
            publish(segue, store, version)
        answers = []

        def update(version):
            answers.append(receiver.post("/update_weights_from_gpu_delta", target_version=version))

        threads = [threading.Thread(target=update, args=(v,)) for v in (3, 3, 4, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {status for status, _ in answers} <= {200, 409}
        assert any(status == 200 for status, _ in answers)
        held = receiver.version()
        assert held in (3, 4) and live_is(receiver, held)


def test_two_hundred_updates_leave_nothing(segue, tmp_path):  # case H2
    """Resident memory and descriptors after 200 versions are those after 50."""
    store, sides = tmp_path / "store", [version_directory("bf16", number) for number in (0, 1)]
    step = ("publish", "--store", store)
    segue(*step, "--base", sides[0], "--target", sides[1])
    with serving(segue, NAME, *at(store)) as receiver:
        held = {}
        for version in range(2, 201):
            base, target = sides[(version + 1) % 2], sides[version % 2]
            segue(*step, "--base", base, "--target", target, "--version", version)
            assert receiver.post("/update_weights_from_gpu_delta")[0] == 200
            if version in (50, 200):
                held[version] = resources(receiver.process.pid)
        assert receiver.version() == 200
        assert receiver.segment.tensors() == read_checkpoint(sides[200 % 2])
        # What leaks would leak once an update; a connection may still be closing.
        assert held[200]["descriptors"] < held[50]["descriptors"] + 10
        assert held[200]["resident"] < held[50]["resident"] + (8 << 20)
        assert len(list(pathlib.Path("/dev/shm").glob(f"segue-{NAME}*"))) == 1


def resources(pid):
    """The least of half a second: the last request's connection may still be closing."""
    samples = []
    for _ in range(10):
        samples.append(resources_now(pid))
        time.sleep(0.05)
    return {name: min(sample[name] for sample in samples) for name in samples[0]}


def resources_now(pid):
    fields = dict(line.split(":", 1) for line in
                  pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return {"resident": int(fields["RssAnon"].split()[0]) * 1024,
            "descriptors": len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))}


def test_demo_of_live_engines(segue):
    root = pathlib.Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, root / "tools/demo_live.py", "--format", "nvfp4"],
                          env={**os.environ, "SEGUE_BINARY": segue.binary}, capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\nverified\n")


def test_one_receiver_a_segment(segue, store):
    with serving(segue, NAME, *at(store)) as receiver:
        second = subprocess.run(receiver.command, capture_output=True, text=True, check=False)
        assert second.returncode == 8, second.stderr
        assert f"lives (process {receiver.process.pid})" in second.stderr
        assert receiver.stop() == 0
        assert receiver.segment.path.exists()
        again = Serving(segue.binary, NAME, *at(store), "--remove").start()
        assert again.ready["version"] == 2 and again.stop() == 0
        assert not receiver.segment.path.exists()
