# SPDX-License-Identifier: Apache-2.0
"""POST /pull_weights: chains, resets, refusals, confined paths, and kill -9 at many points."""

import fcntl
import json
import os
import pathlib
import random
import shutil
import threading
import time

import pytest

from disk_delta_support import (CHECKSUMS, ENCODINGS, read_model, read_state, version_name,
                                write_delta)
from e2e_support import copy_of, tree_of
from live_support import serving
from test_disk_delta import (LIES, chain, lies, lying_sources, model_versions,  # noqa: F401
                             write_checkpoint, write_source)

NAME = f"e2e-pull-{os.getpid()}"


class Puller:
    """A server whose base is version 0 of the chain, and a root with a source and checkpoints."""

    def __init__(self, server, root, folder, versions):
        self.server, self.root, self.folder, self.versions = server, root, folder, versions
        self.source, self.local = root / "source", root / "local"

    def pull(self, version, source=None, local=None, status=200):
        answered, answer = self.server.post(
            "/pull_weights", local_checkpoint_dir=str(local or self.local),
            source_dir=str(source or self.source), target_version=version)
        assert answered == status, answer
        assert answer["success"] == (status == 200)
        assert set(answer) == {"success", "code", "message"}
        return answer

    def is_at(self, version, local=None):
        local = local or self.local
        assert read_model(local) == self.versions[version]
        assert read_state(local) == f"{version:06d}"
        assert set(os.listdir(local / ".weight_sync")) == {"lock", "state.json"}
        return True


@pytest.fixture
def puller(segue, chain, tmp_path):
    folder, versions = chain
    root = tmp_path / "root"
    (root / "source").mkdir(parents=True)
    segue("publish", "--store", tmp_path / "store", "--base", folder / "v0", "--target",
          folder / "v1")
    base = copy_of(folder / "v0", tmp_path / "base")
    (base / "tokenizer.json").write_text("{}")
    with serving(segue, NAME, "--store", tmp_path / "store", "--checkpoint", base,
                 "--pull-root", root) as server:
        yield Puller(server, root, folder, versions)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_step_by_step_and_at_once(puller, encoding, checksum):
    write_source(puller.source, puller.versions, encoding, checksum)
    puller.pull(0)  # As trainers begin: every host warms its local checkpoint.
    assert puller.is_at(0) and (puller.local / "tokenizer.json").read_text() == "{}"
    for version in range(1, 5):
        puller.pull(version)
        assert puller.is_at(version)
    late = puller.root / "late"
    assert "copied from a full checkpoint" in puller.pull(4, local=late)["message"]
    assert puller.is_at(4, late)
    resumed = copy_of(puller.folder / "v1", puller.root / "resumed")
    (resumed / ".weight_sync").mkdir()
    (resumed / ".weight_sync" / "state.json").write_text('{"version": "000001"}')
    assert "before at 1" in puller.pull(4, local=resumed)["message"]
    assert puller.is_at(4, resumed)


def test_same_version_is_nothing_and_back_is_refused(puller):
    write_source(puller.source, puller.versions)
    puller.pull(3)
    before = tree_of(puller.root)
    assert "already" in puller.pull(3)["message"]
    assert puller.pull(2, status=409)["code"] == "version_mismatch"
    assert puller.pull(5, status=409)["code"] == "not_found"
    assert puller.pull(1_000_000, status=409)["code"] == "invalid_argument"
    assert tree_of(puller.root) == before


def test_full_checkpoints_reset_the_chain(puller):
    """With other shards than before: the old ones go, other files stay."""
    write_delta(puller.source, 1, puller.versions[0], puller.versions[1])
    copy_of(puller.folder / "v2", puller.source / version_name(2))
    os.rename(puller.source / version_name(2) / "model.safetensors",
              puller.source / version_name(2) / "other-name.safetensors")
    (puller.source / version_name(2) / "config.json").write_text("new")
    write_delta(puller.source, 3, puller.versions[2], puller.versions[3])
    puller.pull(1)
    (puller.local / "config.json").write_text("old")
    (puller.local / "notes.txt").write_text("mine")
    assert "copied" in puller.pull(3)["message"]
    assert puller.is_at(3)
    assert sorted(os.listdir(puller.local)) == [".weight_sync", "config.json", "notes.txt",
                                                "other-name.safetensors", "tokenizer.json"]
    assert (puller.local / "config.json").read_text() == "new"
    # The base is not needed where a full checkpoint is.
    puller.pull(2, local=puller.root / "second")
    assert puller.is_at(2, puller.root / "second")


@pytest.mark.parametrize("what", LIES)
def test_lies_change_nothing(puller, lies, what):
    code, source = lies[what]
    shutil.copytree(source, puller.source, dirs_exist_ok=True)
    puller.pull(0)
    before = tree_of(puller.local)
    assert puller.pull(1, status=409)["code"] == code
    assert tree_of(puller.local) == before
    fresh = puller.root / "fresh"
    assert puller.pull(1, local=fresh, status=409)["code"] == code
    assert not fresh.exists() or not list(fresh.glob("*.safetensors"))


def test_local_files_that_are_not_the_state(puller):
    """A flipped bit in a tensor that changes is found before anything is written; without the state
    the next pull starts from a full checkpoint."""
    write_source(puller.source, puller.versions)
    puller.pull(1)
    shard = puller.local / "model.safetensors"
    content = bytearray(shard.read_bytes())
    content[-10_000] ^= 1
    shard.write_bytes(content)
    answer = puller.pull(3, status=409)
    assert answer["code"] == "corruption" and "version 2" in answer["message"]
    assert shard.read_bytes() == content and read_state(puller.local) == "000001"
    (puller.local / ".weight_sync" / "state.json").unlink()
    puller.pull(3)
    assert puller.is_at(3)


def test_state_that_says_nothing(puller):
    write_source(puller.source, puller.versions)
    puller.pull(1)
    for text in ("", "{}", '{"version": 1}', '{"version": "1"}', "[]", '{"version": "00000x"}'):
        (puller.local / ".weight_sync" / "state.json").write_text(text)
        answer = puller.pull(2, status=409)
        assert answer["code"] == "corruption" and "may be deleted" in answer["message"]


def test_links_and_shared_files_stay(puller):
    """What other names share with the local files keeps its bytes."""
    write_source(puller.source, puller.versions)
    puller.pull(1)
    shared = puller.root / "shared.safetensors"
    shard = puller.local / "model.safetensors"
    os.link(shard, shared)
    before = shared.read_bytes()
    puller.pull(2)
    puller.pull(3)
    assert puller.is_at(3) and shared.read_bytes() == before
    shard.unlink()
    shared.write_bytes((puller.folder / "v3" / "model.safetensors").read_bytes())
    shard.symlink_to(shared)
    puller.pull(4)
    assert puller.is_at(4) and not shard.is_symlink()
    assert read_model(puller.folder / "v3")  # And the root's own file:
    assert shared.read_bytes() == (puller.folder / "v3" / "model.safetensors").read_bytes()


def test_paths_are_confined(puller, tmp_path):
    write_source(puller.source, puller.versions)
    outside = tmp_path / "outside"
    outside.mkdir()
    (puller.root / "link").symlink_to(outside)
    write_source(outside / "source", puller.versions)
    refused = [
        {"local": outside / "x"}, {"source": outside / "source"},
        {"local": puller.root / ".." / "outside" / "x"}, {"local": puller.root / "link" / "x"},
        {"source": puller.root / "link" / "source"}, {"local": "local"}, {"source": "../source"},
        {"local": str(puller.root) + "-not/x"}, {"local": "/"}, {"local": puller.folder / "v0"},
        {"source": "/etc\0"}]
    for paths in refused:
        assert puller.pull(1, status=409, **paths)["code"] == "invalid_argument", paths
    # A link inside: a version's directory, a shard of a full checkpoint, the local shard.
    (puller.root / "second").mkdir()
    (puller.root / "second" / version_name(1)).symlink_to(outside / "source" / version_name(1))
    assert puller.pull(1, source=puller.root / "second", status=409)["code"] == "invalid_argument"
    full = puller.root / "third" / version_name(1)
    full.mkdir(parents=True)
    (full / "model.safetensors").symlink_to(puller.folder / "v1" / "model.safetensors")
    assert puller.pull(1, source=puller.root / "third", status=409)["code"] == "invalid_argument"
    puller.pull(1)
    shard = puller.local / "model.safetensors"
    shard.unlink()
    shard.symlink_to(puller.folder / "v1" / "model.safetensors")
    assert puller.pull(2, status=409)["code"] == "invalid_argument"
    for own in (".weight_sync", ".segue"):
        local = puller.root / f"local{own}"
        local.mkdir()
        (local / own).symlink_to(outside)
        assert puller.pull(1, local=local, status=409)["code"] == "invalid_argument"
    assert os.listdir(outside) == ["source"]
    assert read_model(puller.folder / "v1") == puller.versions[1]


def test_requests(puller):
    server = puller.server
    status, answer = server.post("/pull_weights")
    assert status == 409 and "required" in answer["message"]
    for field in ("local_checkpoint_dir", "source_dir", "target_version"):
        fields = {"local_checkpoint_dir": str(puller.local), "source_dir": str(puller.source),
                  "target_version": 1}
        assert server.request("/pull_weights", {**fields, field: [1]})[0] == 400
        del fields[field]
        assert server.request("/pull_weights", fields)[0] == 409
    assert server.request("/pull_weights", method="GET")[0] == 404
    document = server.request("/openapi.json")[1]
    schema = document["paths"]["/pull_weights"]["post"]["requestBody"]
    assert set(schema["content"]["application/json"]["schema"]["properties"]) == {
        "local_checkpoint_dir", "source_dir", "target_version"}


def test_refused_without_a_root(segue, chain, tmp_path):
    folder, versions = chain
    segue("publish", "--store", tmp_path / "store", "--base", folder / "v0", "--target",
          folder / "v1")
    arguments = ("--store", tmp_path / "store", "--checkpoint", folder / "v0")
    with serving(segue, NAME, *arguments) as server:
        puller = Puller(server, tmp_path, folder, versions)
        write_source(puller.source, versions)
        answer = puller.pull(1, status=409)
        assert answer["code"] == "invalid_argument" and "--pull-root" in answer["message"]
        assert not puller.local.exists()
    segue.fails("invalid_argument", "serve", "--name", NAME, *arguments, "--pull-root",
                tmp_path / "nowhere")


def test_others_hold_the_lock(puller):
    """Whoever holds `.weight_sync/lock` is waited for; several callers do the work once."""
    write_source(puller.source, puller.versions)
    puller.pull(1)
    answers = []
    with open(puller.local / ".weight_sync" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threads = [threading.Thread(target=lambda: answers.append(puller.pull(4)))
                   for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        assert not answers and read_state(puller.local) == "000001"
    for thread in threads:
        thread.join()
    assert puller.is_at(4)
    assert sorted("already" in answer["message"] for answer in answers) == [False, True, True]


# --- Crashes --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(segue, tmp_path_factory):
    """A dense step of a model that takes a while, as a delta and as a full checkpoint."""
    folder = tmp_path_factory.mktemp("large")
    base, target = map(pathlib.Path, segue("generate", "--output", folder / "run", "--preset",
                                           "bf16-10", "--size", "32MiB", "--shards",
                                           2)["directories"])
    segue("publish", "--store", folder / "store", "--base", base, "--target", target)
    segue("export-disk-delta", "--store", folder / "store", "--base", base, "--output",
          folder / "source")
    (folder / "full").mkdir()
    shutil.copytree(target, folder / "full" / version_name(1))
    return {"folder": folder, "base": base, "versions": [read_model(base), read_model(target)]}


@pytest.mark.parametrize("way", ("source", "full"))
def test_kill_9_while_pulling(segue, large, way):  # case D1
    """At random moments before and after the journal (or the record of a reset) is there: the next
    pull of the version before finds it untouched, or the target; that of the target succeeds."""
    folder, rng = large["folder"], random.Random(20261130)
    local, source = folder / "local", folder / way
    begun = local / (".segue/apply/apply.json" if way == "source" else ".weight_sync/reset.json")
    ends = {"old": 0, "new": 0, "begun": 0}
    window = 0.4
    arguments = ("--store", folder / "store", "--checkpoint", large["base"], "--pull-root", folder)
    for attempt in range(9):
        shutil.rmtree(local, ignore_errors=True)
        with serving(segue, NAME, *arguments) as server:
            puller = Puller(server, folder, large["base"].parent, large["versions"])
            puller.pull(0, source=source, local=local)
            thread = threading.Thread(target=swallow, args=(puller, source, local))
            started = time.monotonic()
            thread.start()
            while attempt % 3 and thread.is_alive() and not begun.exists():
                time.sleep(0.0002)
            if attempt:  # The first one is killed before it has read the request.
                time.sleep(rng.uniform(0, window if attempt % 3 == 0 else 0.15 * window))
            server.kill()
            thread.join()
            window = max(0.1, min(window, time.monotonic() - started))
        state = local / ".weight_sync" / "state.json"
        is_begun = begun.exists() and (way == "source" or not state.exists())
        ends["begun"] += is_begun
        if is_begun:
            for verb in (("verify", "--store", folder / "store", "--checkpoint", local),
                         ("diff", large["base"], local)):
                segue.fails("tainted", *verb)
        with serving(segue, NAME, *arguments) as server:
            puller = Puller(server, folder, large["base"].parent, large["versions"])
            if is_begun and attempt % 2 and way == "source":
                segue("resolve", "--checkpoint", local)
            status, _ = server.post("/pull_weights", local_checkpoint_dir=str(local),
                                    source_dir=str(source), target_version=0)
            version = 0 if status == 200 else 1
            ends["new" if version else "old"] += 1
            assert puller.is_at(version, local)
            puller.pull(1, source=source, local=local)
            assert puller.is_at(1, local)
    assert ends["old"] > 0 and ends["begun"] > 0 and ends["new"] >= ends["begun"], ends


def swallow(puller, source, local):
    try:
        puller.pull(1, source=source, local=local)
    except (OSError, AssertionError, ValueError):
        pass  # The server was killed.


def test_journal_that_cannot_be_resolved(puller):
    """Somebody else has written meanwhile: the files come anew from a full checkpoint."""
    write_source(puller.source, puller.versions)
    puller.pull(1)
    apply = puller.local / ".segue" / "apply"
    apply.mkdir(parents=True)
    (apply / "apply.json").write_text("{}")
    answer = puller.pull(2)
    assert "copied" in answer["message"] and "interrupted" in answer["message"]
    assert puller.is_at(2) and not (puller.local / ".segue").exists()


def test_state_after_segue_resolve(puller):
    """The state is missing or old though the weights are the target's: their digest decides."""
    write_source(puller.source, puller.versions)
    puller.pull(1)
    puller.pull(3)
    state = puller.local / ".weight_sync" / "state.json"
    for text in (None, '{"version": "000001"}'):
        state.unlink()
        if text:
            state.write_text(text)
        assert "already" in puller.pull(3)["message"]
        assert puller.is_at(3)
    # Others have gone on by themselves: their state counts, as ours does not fit the bytes.
    shutil.copy(puller.folder / "v4" / "model.safetensors", puller.local)
    state.write_text(json.dumps({"version": "000004"}))
    assert "already" in puller.pull(4)["message"]
