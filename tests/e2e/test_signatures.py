# SPDX-License-Identifier: Apache-2.0
"""Signed lineages on the command line: who holds the key is believed, nobody else."""

import contextlib
import json
import os
import shutil
import time

import pytest

from e2e_support import copy_of, files_of, same_files, version_directory
from live_support import Serving

# Tests 2 and 3 of RFC 8032, section 7.1.
PRIVATE = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7
-----END PRIVATE KEY-----
"""
PUBLIC = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAPUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=
-----END PUBLIC KEY-----
"""
OTHER_PUBLIC = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA/FHNjmIYoaONpH7QAjDwWAgW7RO6MwOsXeuRFUiQgCU=
-----END PUBLIC KEY-----
"""
OTHER_PRIVATE = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIMWqjfQ/n4N77bdELzHct7Fm04U1B28JS4XOOi4LRFj3
-----END PRIVATE KEY-----
"""


def version(number):
    return version_directory("bf16", number)


def without_signature(text):
    return text[:text.rindex(",")] + "\n}\n"


def rewrite(path, text):
    path.unlink()
    path.write_text(text)


class Signed:
    """A store whose versions 1 and 2 are signed, and the keys."""

    def __init__(self, segue, folder):
        self.segue, self.store = segue, folder / "store"
        for name, text in (("private", PRIVATE), ("public", PUBLIC),
                           ("other", OTHER_PUBLIC), ("other-private", OTHER_PRIVATE)):
            path = folder / f"{name}.pem"
            path.write_text(text)
            path.chmod(0o600)
            setattr(self, name.replace("-", "_"), path)
        for number in (1, 2):
            self.publish(number, "--sign-key", self.private)

    def publish(self, number, *arguments):
        return self.segue("publish", "--store", self.store, "--base", version(number - 1),
                          "--target", version(number), *arguments)

    @contextlib.contextmanager
    def forged(self):
        """As somebody does who can write to the store and has no key: our own programs refuse to
        add anything to what is signed, so it looks unsigned meanwhile."""
        signed = {path: path.read_text() for path in self.store.rglob("*.json")}
        for path, text in signed.items():
            rewrite(path, without_signature(text))
        yield
        for path, text in signed.items():
            if path.exists():
                rewrite(path, text)

    def manifest(self, number):
        return self.store / f"default/versions/{number:010d}.json"

    def apply(self, output, *arguments):
        return ("apply", "--store", self.store, "--checkpoint", version(0), "--output", output,
                *arguments)


@pytest.fixture
def signed(segue, tmp_path):
    return Signed(segue, tmp_path)


def test_signed_versions_are_taken(segue, signed, tmp_path):
    segue(*signed.apply(tmp_path / "a", "--public-key", signed.other, "--public-key",
                        signed.public))
    assert same_files(tmp_path / "a", version(2))
    segue(*signed.apply(tmp_path / "b"))  # Without a key nobody asks.
    held = segue("verify", "--store", signed.store, "--checkpoint", tmp_path / "b",
                 "--public-key", signed.public)
    assert held["version"] == 2
    for path in (signed.manifest(1), signed.store / "default/lineage.json"):
        assert len(json.loads(path.read_text())["signature"]) == 128


def test_without_the_key_nothing_is_written(segue, signed, tmp_path):
    def files():
        return {path: path.read_bytes() for path in signed.store.rglob("*") if path.is_file()}

    before = files()
    publish = ("publish", "--store", signed.store, "--base", version(2), "--target", version(3))
    anchors = ("anchors", "--store", signed.store)
    for arguments in (publish, (*publish, "--public-key", signed.public), (*publish, "--retain", 1),
                      (*anchors, "--set", "base"), (*anchors, "--remove", "base")):
        done = segue.run(*arguments)
        assert done.returncode == 2 and "--sign-key" in done.stderr, done.stderr
        assert files() == before
    assert segue(*anchors)["anchors"] == []  # Who only looks needs no key.
    signed.publish(3, "--sign-key", signed.private)
    segue(*signed.apply(tmp_path / "a", "--public-key", signed.public))


def test_foreign_keys_are_refused_before_anything_is_fetched(segue, signed, tmp_path):
    for payload in signed.store.glob("default/payloads/*/*"):
        payload.unlink()
    message = segue.fails("corruption", *signed.apply(tmp_path / "a", "--public-key", signed.other))
    assert "default/lineage.json" in message and "none of the given keys" in message
    assert not (tmp_path / "a").exists()
    segue.fails("corruption", "verify", "--store", signed.store, "--checkpoint", version(0),
                "--public-key", signed.other)


def test_an_unsigned_version_is_refused(segue, signed, tmp_path):
    with signed.forged():
        signed.publish(3)
    message = segue.fails("corruption", *signed.apply(tmp_path / "a", "--public-key",
                                                      signed.public))
    assert "0000000003.json" in message and "is not signed" in message
    segue(*signed.apply(tmp_path / "b"))
    assert same_files(tmp_path / "b", version(3))


@pytest.mark.parametrize("lie", ("flipped", "stripped", "replayed", "foreign"))
def test_lies(segue, signed, tmp_path, lie):
    path = signed.manifest(2)
    text = path.read_text()
    if lie == "flipped":
        text = text.replace('"changed_chunks": ', '"changed_chunks":  ')
    elif lie == "stripped":
        text = without_signature(text)
        json.loads(text)
    elif lie == "replayed":
        path = signed.manifest(3)
    else:
        with signed.forged():
            path.unlink()
            segue("publish", "--store", signed.store, "--base", version(1), "--target", version(2))
            text = path.read_text()
    path.unlink(missing_ok=True)
    path.write_text(text)
    message = segue.fails("corruption", *signed.apply(tmp_path / "a", "--public-key",
                                                      signed.public))
    assert path.name in message


def test_a_publisher_builds_on_nothing_foreign(segue, signed, tmp_path):
    message = segue.fails("corruption", "publish", "--store", signed.store, "--base", version(2),
                          "--target", version(3), "--sign-key", signed.other_private)
    assert "lineage.json" in message
    # The new key, with the old one believed: readers need both.
    signed.publish(3, "--sign-key", signed.other_private, "--public-key", signed.public)
    segue.fails("corruption", *signed.apply(tmp_path / "a", "--public-key", signed.public))
    segue(*signed.apply(tmp_path / "b", "--public-key", signed.public, "--public-key",
                        signed.other))
    assert same_files(tmp_path / "b", version(3))


def test_the_same_step_again_is_told_so(signed):
    again = signed.publish(2, "--sign-key", signed.private)
    assert again["already_published"] and again["target_version"] == 2


def test_versions_of_another_run(segue, tmp_path, signed):
    """Two runs of one lineage name, key and origin: every statement of the other run is signed, and
    none of its versions follows one of ours."""
    other = tmp_path / "other"
    for number, base, target in ((1, 0, 3), (2, 3, 4)):
        segue("publish", "--store", other, "--base", version(base), "--target", version(target),
              "--version", number, "--sign-key", signed.private)
    held = copy_of(version(1), tmp_path / "held")
    before = files_of(held)
    keys = ("--public-key", signed.public)
    # The whole store: ours is at a version that the other run has not.
    segue.fails("version_mismatch", "apply", "--store", other, "--checkpoint", held, *keys)
    assert files_of(held) == before
    # One version in the place of ours.
    manifest = signed.store / "default/versions/0000000002.json"
    rewrite(manifest, (other / "default/versions/0000000002.json").read_text())
    shutil.copytree(other / "default/payloads", signed.store / "default/payloads",
                    dirs_exist_ok=True)
    for checkpoint in (held, version(0)):
        done = segue.run("apply", "--store", signed.store, "--checkpoint", checkpoint, "--output",
                         tmp_path / "output", *keys)
        assert done.returncode in (4, 5), done.stderr
        assert not (tmp_path / "output").exists()
    assert files_of(held) == before
    # Where nobody has gone further than the origin, the other run is one like any.
    segue("apply", "--store", other, "--checkpoint", version(0), "--output", tmp_path / "b", *keys)
    assert same_files(tmp_path / "b", version(4))


def test_owners_sign_their_records(segue, tmp_path, signed):
    arguments = ("publish", "--store", signed.store, "--base", version(2), "--target", version(3),
                 "--version", 3, "--owners", 2, "--session", "s", "--owner-timeout", 30)
    keyed = (*arguments, "--sign-key", signed.private)
    folder = signed.store / "default/owners/0000000003/s"
    # A record that is not signed is refused by owner 0.
    first = segue.start(*keyed, "--owner", 0)
    while not list(folder.glob("*.round")):
        time.sleep(0.01)
    mark = next(folder.glob("*.round")).stem
    (folder / f"00001-of-00002-{mark}.json").write_text("{\n}\n")
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 5 and "owners/" in errors, errors
    first = segue.start(*keyed, "--owner", 0)
    segue(*keyed, "--owner", 1)
    assert first.communicate(timeout=60)[1] == "" and first.returncode == 0
    segue(*signed.apply(tmp_path / "a", "--public-key", signed.public))
    assert same_files(tmp_path / "a", version(3))


def test_delta_checkpoints(segue, signed, tmp_path):
    plain, file = tmp_path / "plain.segue", tmp_path / "signed.segue"
    segue("checkpoint", "--store", signed.store, "--output", plain, "--public-key", signed.public)
    segue("checkpoint", "--store", signed.store, "--output", file, "--sign-key", signed.private)
    restore = ("restore", "--base", version(0), "--public-key", signed.public)
    message = segue.fails("corruption", *restore, "--file", plain, "--output", tmp_path / "a")
    assert "is not signed" in message
    segue(*restore, "--file", file, "--output", tmp_path / "b")
    assert files_of(tmp_path / "b") == files_of(version(2))


def test_key_files(segue, signed, tmp_path):
    signed.private.chmod(0o640)
    message = segue.fails("invalid_argument", "publish", "--store", signed.store, "--base",
                          version(2), "--target", version(3), "--sign-key", signed.private)
    assert "chmod 600" in message
    segue.fails("not_found", *signed.apply(tmp_path / "a", "--public-key", tmp_path / "nowhere"))
    segue.fails("invalid_argument", *signed.apply(tmp_path / "a", "--public-key", signed.private))


def test_keys_from_the_environment(segue, signed, tmp_path, monkeypatch):
    monkeypatch.setenv("SEGUE_PUBLIC_KEY", str(signed.other))
    segue.fails("corruption", *signed.apply(tmp_path / "a"))
    monkeypatch.setenv("SEGUE_PUBLIC_KEY", str(signed.public))
    monkeypatch.setenv("SEGUE_SIGN_KEY", str(signed.private))
    signed.publish(3)
    segue(*signed.apply(tmp_path / "b"))
    assert same_files(tmp_path / "b", version(3))


@pytest.mark.parametrize("value", ["", " ", "\t"])
@pytest.mark.parametrize("variable", ["SEGUE_PUBLIC_KEY", "SEGUE_SIGN_KEY"])
def test_a_key_variable_that_is_empty_is_refused(segue, signed, tmp_path, monkeypatch, variable,
                                                 value):
    """Taken for none it would turn verification, or signing, off without a word."""
    monkeypatch.setenv(variable, value)
    readers = [signed.apply(tmp_path / "a"), ("verify", "--checkpoint", version(0), "--store",
                                              signed.store)]
    publish = ("publish", "--store", tmp_path / "new", "--base", version(0), "--target", version(1))
    for arguments in [publish, *(readers if variable == "SEGUE_PUBLIC_KEY" else [])]:
        assert variable in segue.fails("invalid_argument", *arguments)
    assert not (tmp_path / "new").exists() and not (tmp_path / "a").exists()
    assert "--public-key" in segue.fails("invalid_argument", *signed.apply(tmp_path / "a"),
                                         "--public-key", "")


@pytest.mark.parametrize("value", ["", " ", "a b"])
def test_a_token_variable_without_a_token_is_refused(segue, tmp_path, monkeypatch, value):
    serve = ("serve", "--store", tmp_path, "--checkpoint", version(0), "--name", "no-token")
    engine = (*serve, "--engine", "sglang", "--engine-url", "http://127.0.0.1:1")
    wait = ("publish", "--store", tmp_path / "s", "--base", version(0), "--target", version(1),
            "--wait-for", "http://127.0.0.1:1")
    top = ("top", "--engine", "http://127.0.0.1:1", "--once")
    for variable, commands in (
            ("SEGUE_TOKEN", (serve, wait, top)),
            ("SEGUE_ENGINE_TOKEN", (engine,)),
            ("SEGUE_STORE_TOKEN", (serve, ("store", "--dir", tmp_path),
                                   ("inspect", "http://127.0.0.1:1/")))):
        with monkeypatch.context() as context:
            context.setenv(variable, value)
            for arguments in commands:
                assert variable in segue.fails("invalid_argument", *arguments), arguments
    assert not (tmp_path / "s").exists()


def test_serve(segue, signed, tmp_path):
    name = f"signed-{os.getpid()}"
    serving = Serving(segue.binary, name, "--store", signed.store, "--checkpoint", version(0),
                      "--public-key", signed.public, "--listen", "127.0.0.1:0")
    try:
        serving.start()
        with signed.forged():
            signed.publish(3)
        status, answer = serving.request("/update_weights_from_gpu_delta", {"target_version": 3})
        assert status == 409 and answer["code"] == "corruption", answer
        assert "is not signed" in answer["message"]
        status, health = serving.request("/healthz")
        assert status == 200 and health["version"] == 2
    finally:
        serving.kill()
        serving.segment.remove()


def test_top(segue, signed):
    """With a key nothing is shown that it has not signed."""
    look = ("top", "--once", "--store", signed.store)
    with signed.forged():
        signed.publish(3)
    assert segue(*look)["lineages"][0]["newest"] == 3
    lineage, = segue(*look, "--public-key", signed.public)["lineages"]
    assert "is not signed" in lineage["error"]
    signed.manifest(3).unlink()
    lineage, = segue(*look, "--public-key", signed.public)["lineages"]
    assert lineage["newest"] == 2 and not lineage["error"]
    lineage, = segue(*look, "--public-key", signed.other)["lineages"]
    assert lineage["error"]


def test_anchors(segue, signed, tmp_path):
    anchors = ("anchors", "--store", signed.store, "--set", "eval=0")
    segue(*anchors, "--sign-key", signed.private)
    segue(*signed.apply(tmp_path / "a", "--public-key", signed.public))
    assert same_files(tmp_path / "a", version(2))
    signed.publish(3, "--sign-key", signed.private)
    with signed.forged():
        segue("anchors", "--store", signed.store, "--set", "other=1")
    message = segue.fails("corruption", *signed.apply(tmp_path / "b", "--public-key",
                                                      signed.public))
    assert "anchors/other" in message
