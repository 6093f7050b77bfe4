# SPDX-License-Identifier: Apache-2.0
"""Several lineages at one engine (docs/protocol.md, section 15): a policy and its draft model in
numpy arrays, and in segments. One fails: none moves. Case D1 with real kills: tests/e2e and
src/live."""

import os
import threading
import time

import numpy as np
import pytest

import segue
from python_support import bound, copy_of, make_model, same_bytes, step

NAME = f"py-group-{os.getpid()}"


class Side:
    """One lineage: a trainer's model and publisher, and the engine's copy."""

    def __init__(self, store, lineage, seed):
        self.store, self.lineage = store, lineage
        self.model = make_model(seed)
        self.live = copy_of(self.model)
        self.versions = [copy_of(self.model)]
        self.publisher = segue.Publisher(store, lineage=lineage, base=self.model)

    def publish(self):
        step(self.model, len(self.versions))
        self.versions.append(copy_of(self.model))
        self.publisher.publish(self.model)

    def receiver(self, **options):
        return bound(self.store, self.live, lineage=self.lineage, **options)

    def held(self):
        """The version whose bytes are live; None where it is none."""
        for number, version in enumerate(self.versions):
            if same_bytes(self.live, version):
                return number
        return None


@pytest.fixture
def sides(tmp_path):
    made = [Side(tmp_path / "store", "policy", 1), Side(tmp_path / "store", "draft", 2)]
    for side in made:
        side.publish()
    return made


def group_of(sides, **options):
    return segue.ReceiverGroup([side.receiver() for side in sides], **options)


def held(sides):
    return tuple(side.held() for side in sides)


def test_one_call_moves_both(sides):
    with group_of(sides) as group:
        group.open()
        assert held(sides) == (0, 0), "bound tensors stay at their version"
        reports = group.update()
        assert held(sides) == (1, 1)
        assert list(reports) == ["policy", "draft"]
        assert reports["draft"].target_version == 1 and reports["draft"].changed_elements > 0
        assert reports["policy"].pause_started_ns == reports["draft"].pause_started_ns
        assert [status.version for status in group.status.values()] == [1, 1]
        assert all(status.ready for status in group.status.values())


def test_targets(sides):
    policy, draft = sides
    for side in (policy, policy, draft):
        side.publish()
    assert group_of(sides).versions() == {"policy": [1, 2, 3], "draft": [1, 2]}
    with group_of(sides) as group:
        group.update(1)
        assert held(sides) == (1, 1)
        assert list(group.update({"draft": 2})) == ["draft"]
        assert held(sides) == (1, 2)
        group.update({"policy": 2})
        assert held(sides) == (2, 2)
        with pytest.raises(segue.NotFoundError, match="lineage 'draft'"):
            group.update(3)
        for wrong in ({"critic": 1}, {}):
            with pytest.raises(segue.InvalidArgumentError):
                group.update(wrong)
        assert held(sides) == (2, 2)
        group.update()
        assert held(sides) == (3, 2)


def test_one_fails_none_moves(sides):
    policy, draft = sides
    with group_of(sides) as group:
        group.update()
        for side in sides:
            side.publish()
        payloads = policy.store / "draft/payloads/0000000002"
        away = policy.store / "away"
        payloads.rename(away)
        with pytest.raises(segue.NotFoundError, match="lineage 'draft'"):
            group.update()
        assert held(sides) == (1, 1)
        away.rename(payloads)
        group.update()
        assert held(sides) == (2, 2)


def test_a_replaced_tensor_is_named(sides):
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(array) for name, array in sides[1].live.items()}
    draft = bound(sides[1].store, tensors, lineage="draft")
    with segue.ReceiverGroup([sides[0].receiver(), draft]) as group:
        group.open()
        tensors["layer.0.weight"].data = tensors["layer.0.weight"].clone()
        with pytest.raises(segue.InvalidArgumentError, match="'layer.0.weight'.*replaced"):
            group.update()
        assert held(sides) == (0, 0)


def test_steps_see_no_mix(sides):
    """A thread that computes with both while they move: what it reads is of one update."""
    with group_of(sides) as group:
        group.update()
        for _ in range(5):
            for side in sides:
                side.publish()
        seen, stop = [], threading.Event()

        def compute():
            while not stop.is_set():
                with group.step(timeout=60):
                    seen.append(held(sides))

        thread = threading.Thread(target=compute)
        thread.start()
        for version in range(2, 7):
            group.update(version)
        while not seen:
            time.sleep(0.001)
        stop.set()
        thread.join()
        assert all(one == other and one is not None for one, other in seen), seen
        assert held(sides) == (6, 6)


def test_a_step_that_is_inside_holds_all(sides):
    receivers = [side.receiver(gate_timeout=0.05) for side in sides]
    with segue.ReceiverGroup(receivers) as group:
        group.open()
        with group.step():
            with pytest.raises(segue.UnavailableError, match="still inside"):
                threaded(group.update)
            assert held(sides) == (0, 0)
        group.update()
        assert held(sides) == (1, 1)
        one = group.step()
        with one:
            with pytest.raises(segue.InvalidArgumentError):
                one.__enter__()


def threaded(call):
    """As a thread of its own, which is inside no step; what it raises is raised."""
    failed = []

    def run():
        try:
            call()
        except segue.Error as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def test_step_by_step_with_hooks(sides):
    calls = []
    hooks = segue.engine_hooks(
        pause=lambda abort, flush: calls.append("pause"), resume=lambda: calls.append("resume"),
        flush=lambda: calls.append("flush") or ["kv"],
        set_version=lambda label: calls.append(label))
    with group_of(sides, hooks=hooks) as group:
        group.open()
        calls.clear()
        group.prepare(session="s")
        group.wait_prepared()
        assert calls == []
        group.apply("s")
        assert calls == ["pause", "flush", "policy/1 draft/1"]
        group.resume("s")
        assert calls[-1] == "resume"
        group.clear()
        with pytest.raises(segue.InvalidArgumentError, match="'policy'"):
            group.rebuild({"draft": 1})


def test_hooks_that_raise_are_the_cause(sides):
    def pause(abort, flush):
        raise ValueError("no pause")

    hooks = segue.engine_hooks(pause=pause, resume=lambda: None)
    with pytest.raises(segue.Error) as caught:
        group_of(sides, hooks=hooks).open()
    assert isinstance(caught.value.__cause__, ValueError)


def test_follow(sides):
    with group_of(sides) as group:
        group.follow(0.005)
        for side in sides:
            side.publish()
        deadline = time.monotonic() + 30
        while held(sides) != (2, 2) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert held(sides) == (2, 2)


def test_follow_in_step(sides):
    with group_of(sides, same_version=True) as group:
        group.update()
        sides[0].publish()
        group.follow(0.005)
        time.sleep(0.1)
        assert held(sides) == (1, 1)
        sides[1].publish()
        deadline = time.monotonic() + 30
        while held(sides) != (2, 2) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert held(sides) == (2, 2)


def test_what_may_join(sides):
    policy, draft = (side.receiver() for side in sides)
    group = segue.ReceiverGroup([policy, draft])
    for call in (policy.update, policy.open, lambda: policy.bind("x", np.zeros(1, np.uint8)),
                 lambda: segue.ReceiverGroup([policy])):
        with pytest.raises(segue.InvalidArgumentError):
            call()
    group.update()
    group.close()
    with pytest.raises(segue.InvalidArgumentError, match="closed"):
        group.update()
    hooks = segue.engine_hooks(pause=lambda abort, flush: None, resume=lambda: None)
    named = segue.Receiver(sides[0].store, name=NAME)
    opened = sides[0].receiver().open()
    again = sides[0].receiver()
    for wrong in ([], [opened], [sides[0].receiver(hooks=hooks)], [named, sides[1].receiver()],
                  [again, again]):
        with pytest.raises(segue.InvalidArgumentError):
            segue.ReceiverGroup(wrong)
    with pytest.raises(segue.InvalidArgumentError, match="twice"):
        segue.ReceiverGroup([sides[0].receiver(), sides[0].receiver()]).open()
    with pytest.raises(TypeError):
        group.__reduce__()


def test_segments(sides, tmp_path):
    """Engines of other processes: attach to each, one step for all."""
    names = [NAME, NAME + ".draft"]
    for name in names:
        segue.remove_segment(name)
    checkpoints = [write_checkpoint(tmp_path / side.lineage, side.versions[0]) for side in sides]
    receivers = [segue.Receiver(side.store, lineage=side.lineage, name=name, checkpoint=checkpoint)
                 for side, name, checkpoint in zip(sides, names, checkpoints)]
    try:
        with segue.ReceiverGroup(receivers) as group:
            group.open()
            policy, draft = (segue.attach(name) for name in names)
            with segue.step_all(policy, draft) as inside:
                assert [(one.lineage, one.version) for one in inside.versions] == [
                    ("policy", 1), ("draft", 1)]
                for weights, side in ((policy, sides[0]), (draft, sides[1])):
                    for name, array in side.versions[1].items():
                        assert weights.numpy(name).tobytes() == array.tobytes(), name
            for side in sides:
                side.publish()
            group.update()
            with segue.step_all(policy, draft, timeout=5) as inside:
                assert [one.version for one in inside.versions] == [2, 2]
            group.prepare(session="s")
            group.wait_prepared()
            for side in sides:
                side.publish()
            group.abort("s")
            group.prepare(session="t")
            group.wait_prepared()
            group.apply("t")
            with pytest.raises(segue.UnavailableError):
                segue.step_all(policy, draft, timeout=0.05).__enter__()
            group.resume("t")
            with pytest.raises(segue.InvalidArgumentError, match="one by one"):
                segue.step_all([policy, draft])
            with pytest.raises(segue.InvalidArgumentError, match="twice"):
                segue.step_all(policy, draft, policy)
            with segue.step_all(policy, draft):
                pass
    finally:
        for name in names:
            segue.remove_segment(name)


def write_checkpoint(folder, model):
    """A directory with one safetensors file."""
    import json
    import struct
    header, data, place = {}, b"", 0
    names = {"float32": "F32", "float16": "F16", "float64": "F64", "uint8": "U8"}
    for name, array in model.items():
        content = array.tobytes()
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [place, place + len(content)]}
        data, place = data + content, place + len(content)
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder
