# SPDX-License-Identifier: Apache-2.0
"""`segue serve --with`: a policy and its draft model at one engine, moved by one call together or
not at all (docs/protocol.md, section 15)."""

import os
import shutil
import time

import pytest

from group_support import Lineages, serving_both
from live_support import check_schema, serving

NAME = f"group-{os.getpid()}"
UPDATE = "/update_weights_from_gpu_delta"


@pytest.fixture(scope="module")
def made(segue, tmp_path_factory):
    return Lineages(segue, tmp_path_factory.mktemp("group"), {"policy": "2MiB", "draft": "1MiB"})


@pytest.fixture
def lineages(made):
    """Both at version 1, in a store of this test's own."""
    shutil.rmtree(made.store, ignore_errors=True)
    for name in ("policy", "draft"):
        made.publish(name, 1)
    return made


def holds(receiver, lineages, policy, draft):
    return (receiver.segment.version() == policy and receiver.draft.version() == draft
            and receiver.segment.tensors() == lineages.bytes_of("policy", policy)
            and receiver.draft.tensors() == lineages.bytes_of("draft", draft)
            and not receiver.segment.gate_is_closed() and not receiver.draft.gate_is_closed())


def wait_for(reached):
    deadline = time.monotonic() + 30
    while not reached() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reached()


def test_one_call_moves_both(segue, lineages):
    with serving_both(segue, NAME, lineages) as receiver:
        assert [one["lineage"] for one in receiver.ready["lineages"]] == ["policy", "draft"]
        assert receiver.ready["lineages"][1]["name"] == f"{NAME}.draft"
        assert holds(receiver, lineages, 1, 1)
        lineages.publish("policy", 2)
        lineages.publish("draft", 2)
        status, answer = receiver.post(UPDATE)
        assert status == 200, answer
        assert holds(receiver, lineages, 2, 2)
        policy, draft = answer["participants"]
        assert (policy["stream_id"], draft["stream_id"]) == ("policy", "draft")
        assert policy["engine_id"] == draft["engine_id"] == NAME
        assert policy["state"] == draft["state"] == "RESUMED"
        assert (policy["version"], draft["version"]) == (2, 2)
        assert policy["scheduler_timing"] == draft["scheduler_timing"], "one pause for both"
        lineages.publish("draft", 3)
        look = ("top", "--once", "--store", lineages.store, "--engine", receiver.url)
        rows = [line.split() for line in segue.text(*look).splitlines()
                if line.strip().startswith(NAME)]
        assert [row[2:5] for row in rows] == [["policy", "2", "0"], ["draft", "2", "1"]]
        engine, = segue(*look)["engines"]
        assert [held["lag"] for held in engine["lineages"]] == [0, 1]
        assert receiver.stop() == 0


def test_a_draft_that_cannot_move_keeps_the_policy(segue, lineages):
    with serving_both(segue, NAME, lineages) as receiver:
        lineages.publish("policy", 2)
        lineages.publish("draft", 2)
        payloads = lineages.store / "draft/payloads/0000000002"
        away = lineages.store.parent / "away"
        shutil.move(payloads, away)
        status, answer = receiver.post(UPDATE)
        assert status == 409 and answer["code"] == "not_found", answer
        assert "lineage 'draft'" in answer["message"]
        assert holds(receiver, lineages, 1, 1)
        assert [one["state"] for one in answer["participants"]] == ["FAILED", "FAILED"]
        assert receiver.request("/healthz")[0] == 200
        shutil.move(away, payloads)
        assert receiver.post(UPDATE, target_version=2)[0] == 200
        assert holds(receiver, lineages, 2, 2)


def test_targets(segue, lineages):
    with serving_both(segue, NAME, lineages) as receiver:
        for version in (2, 3):
            lineages.publish("policy", version)
        lineages.publish("draft", 2)
        for fields, words in (({"target_version": 3}, "draft"),
                              ({"target_versions": {"critic": 1}}, "'critic'"),
                              ({"target_versions": {}}, "at least one lineage"),
                              ({"target_versions": {"draft": 2}, "target_version": 2}, "no other"),
                              ({"manifest_path": "0000000002.json"}, "stream_id"),
                              ({"stream_id": "critic"}, "'critic'")):
            status, answer = receiver.post(UPDATE, **fields)
            assert status == 409 and words in answer["message"], (fields, answer)
        assert receiver.post(UPDATE, target_versions={"draft": -1})[0] == 400
        assert receiver.post(UPDATE, target_versions={"draft": "2"})[0] == 400
        assert holds(receiver, lineages, 1, 1)
        assert receiver.post(UPDATE, target_versions={"draft": 2})[0] == 200
        assert holds(receiver, lineages, 1, 2)
        assert receiver.post(UPDATE, stream_id="policy",
                             manifest_path="versions/0000000002.json")[0] == 200
        assert holds(receiver, lineages, 2, 2)
        assert receiver.post(UPDATE, target_versions={"policy": 3, "draft": 2})[0] == 200
        assert holds(receiver, lineages, 3, 2)


def test_step_by_step(segue, lineages):
    with serving_both(segue, NAME, lineages) as receiver:
        lineages.publish("policy", 2)
        lineages.publish("draft", 2)
        refused = receiver.post("/prepare_gpu_delta", session_id="a", base_version=1)
        assert refused[0] == 409 and "stream_id" in refused[1]["message"]
        assert receiver.post("/prepare_gpu_delta", session_id="a")[0] == 200
        wait_for(lambda: receiver.post("/get_gpu_delta_status")[1]["participants"][0]["state"]
                 == "PREPARED")
        assert receiver.post("/apply_gpu_delta", session_id="a")[0] == 200
        assert receiver.segment.gate_is_closed() and receiver.draft.gate_is_closed()
        assert receiver.request("/healthz")[0] == 503
        assert receiver.post("/resume_gpu_delta", session_id="a")[0] == 200
        assert holds(receiver, lineages, 2, 2)
        assert receiver.post("/prepare_gpu_delta", session_id="b", stream_id="draft",
                             base_version=1)[1]["code"] == "version_mismatch"


def test_looks(segue, lineages):
    with serving_both(segue, NAME, lineages) as receiver:
        lineages.publish("draft", 2)
        assert receiver.post(UPDATE)[0] == 200
        health = receiver.request("/healthz")[1]
        assert (health["ready"], health["lineage"], health["version"]) == (True, "policy", 1)
        assert [(one["lineage"], one["version"], one["ready"]) for one in health["lineages"]] == [
            ("policy", 1, True), ("draft", 2, True)]
        versions = receiver.request("/versions")[1]
        assert versions["newest"] == 1 and versions["lineages"][1]["versions"] == [1, 2]
        metrics = receiver.request("/metrics")[1]
        for sample in (f'segue_version{{engine="{NAME}",lineage="policy"}} 1',
                       f'segue_version{{engine="{NAME}",lineage="draft"}} 2'):
            assert sample in metrics.splitlines()
        assert metrics.count("# TYPE segue_version ") == 1


def test_openapi_is_true(segue, lineages):
    with serving_both(segue, NAME, lineages) as receiver:
        document = receiver.request("/openapi.json")[1]
        for path in ("/healthz", "/versions"):
            content = document["paths"][path]["get"]["responses"]["200"]["content"]
            answer = receiver.request(path)[1]
            assert len(answer["lineages"]) == 2
            check_schema(answer, content["application/json"]["schema"], document, path)
        fields = document["paths"][UPDATE]["post"]["requestBody"]["content"]["application/json"]
        versions = fields["schema"]["properties"]["target_versions"]
        assert versions["additionalProperties"] == {"type": "integer", "minimum": 0}


def test_rebuild_is_of_all(segue, lineages):
    with serving_both(segue, NAME, lineages) as receiver:
        lineages.publish("policy", 2)
        assert receiver.post(UPDATE)[0] == 200
        status, answer = receiver.post("/rebuild", target_versions={"policy": 1})
        assert status == 409 and "'draft'" in answer["message"]
        assert receiver.post("/rebuild", target_versions={"policy": 1, "draft": 1})[0] == 200
        assert holds(receiver, lineages, 1, 1)
        assert receiver.post("/rebuild")[0] == 200
        assert holds(receiver, lineages, 2, 1)


def test_follow(segue, lineages):
    with serving_both(segue, NAME, lineages, "--follow", 10) as receiver:
        lineages.publish("draft", 2)
        wait_for(lambda: receiver.draft.version() == 2)
        lineages.publish("policy", 2)
        wait_for(lambda: receiver.segment.version() == 2)
        wait_for(lambda: holds(receiver, lineages, 2, 2))


def test_follow_in_step(segue, lineages):
    with serving_both(segue, NAME, lineages, "--follow", 10, "--same-version") as receiver:
        lineages.publish("policy", 2)
        time.sleep(0.3)
        assert holds(receiver, lineages, 1, 1)
        lineages.publish("draft", 2)
        wait_for(lambda: receiver.draft.version() == 2)
        wait_for(lambda: holds(receiver, lineages, 2, 2))


def test_options(segue, lineages):
    for wrong in ("draft", "=x", "draft="):
        assert "LINEAGE=CHECKPOINT" in segue.fails(
            "invalid_argument", "serve", "--name", NAME, "--store", lineages.store, "--checkpoint",
            lineages.directory("policy", 0), "--lineage", "policy", "--with", wrong)
    assert "twice" in segue.fails(
        "invalid_argument", "serve", "--name", NAME, *lineages.arguments(), "--with",
        f"policy={lineages.directory('policy', 0)}")


def test_removes_all_segments(segue, lineages):
    with serving_both(segue, NAME, lineages, "--remove") as receiver:
        assert receiver.stop() == 0
        assert not receiver.segment.path.exists() and not receiver.draft.path.exists()


def test_a_receiver_of_one_answers_as_ever(segue, lineages):
    arguments = ("--store", lineages.store, "--checkpoint", lineages.directory("policy", 0),
                 "--lineage", "policy")
    with serving(segue, NAME, *arguments) as receiver:
        assert "lineages" not in receiver.ready
        assert set(receiver.request("/healthz")[1]) == {"ready", "lineage", "version", "digest",
                                                        "message"}
        assert set(receiver.request("/versions")[1]) == {"lineage", "version", "newest",
                                                         "versions"}
