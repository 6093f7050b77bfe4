# SPDX-License-Identifier: Apache-2.0
"""What the system does to a program from outside: limits, files that shrink, several at once, names
that steer a terminal. Every outcome is an exit code of the table and a sentence, never a signal."""

import json
import os
import resource
import shutil
import subprocess
import time

import pytest

from e2e_support import EXIT_CODES, check_failure, files_of, same_files

SIZE = 24 << 20


@pytest.fixture(scope="module")
def step(segue, tmp_path_factory):
    """A store with one step, and both versions."""
    folder = tmp_path_factory.mktemp("faults")
    base, target = map(folder.__class__, segue(
        "generate", "--output", folder / "run", "--size", SIZE, "--steps", 1)["directories"])
    segue("publish", "--store", folder / "store", "--base", base, "--target", target)
    return {"store": folder / "store", "base": base, "target": target}


@pytest.fixture
def engine(step, tmp_path):
    return shutil.copytree(step["base"], tmp_path / "engine")


def limited(segue, limit, value, *arguments):
    """Runs the program with a limit of the system set to `value`."""
    return subprocess.run(
        segue.command(*arguments), capture_output=True, text=True, timeout=120, check=False,
        preexec_fn=lambda: resource.setrlimit(limit, (value, value)))


def test_limit_of_file_size_is_an_error(segue, step, engine, tmp_path):
    """SIGXFSZ would end the program without a word."""
    before = files_of(engine)
    for size in (1000, 100_000, 1_000_000):
        for arguments in (
                ("apply", "--store", step["store"], "--checkpoint", engine, "--json"),
                ("apply", "--store", step["store"], "--checkpoint", engine, "--json",
                 "--output", tmp_path / "output"),
                ("publish", "--store", tmp_path / f"store-{size}", "--base", step["base"],
                 "--target", step["target"], "--json")):
            done = limited(segue, resource.RLIMIT_FSIZE, size, *arguments)
            if done.returncode != 0:  # The payload may be smaller than the limit.
                check_failure("resource_exhausted", done.returncode, done.stdout, done.stderr)
                assert files_of(engine) == before
            else:
                shutil.rmtree(engine)
                shutil.copytree(step["base"], engine)
    assert not (tmp_path / "output").exists()


def test_limits_of_memory_and_threads(segue, step, engine):
    """Fewer threads than asked for, or resource_exhausted with the files as they were."""
    outcomes = set()
    for megabytes in (*range(60, 200, 10), 240, 400, 700, 2000):
        shutil.rmtree(engine)
        shutil.copytree(step["base"], engine)
        done = limited(segue, resource.RLIMIT_AS, megabytes << 20, "apply", "--store",
                       step["store"], "--checkpoint", engine, "--threads", 64)
        # Below a few tens of MB the loader cannot even map the libraries.
        assert done.returncode in (0, EXIT_CODES["resource_exhausted"], 127), done
        outcomes.add(done.returncode)
        assert same_files(engine, step["target" if done.returncode == 0 else "base"])
    assert 0 in outcomes


def test_shrinking_shard_is_an_error(segue, step, tmp_path):
    """SIGBUS would end the program without a word."""
    for attempt in range(4):
        engine = shutil.copytree(step["base"], tmp_path / f"engine{attempt}")
        process = segue.start("publish", "--store", tmp_path / f"store{attempt}", "--base", engine,
                              "--target", step["target"], "--threads", 1, "--json")
        time.sleep(0.01 * attempt)
        shard = sorted(engine.glob("*.safetensors"))[1]
        os.truncate(shard, 5000)
        stdout, stderr = process.communicate(timeout=60)
        allowed = (0, EXIT_CODES["corruption"], EXIT_CODES["unavailable"])
        assert process.returncode in allowed, stderr
        if process.returncode == EXIT_CODES["unavailable"]:
            message = check_failure("unavailable", process.returncode, stdout, stderr)
            assert shard.name in message and "shrank" in message


def test_two_applies_to_one_output(segue, step, tmp_path):
    output = tmp_path / "output"
    for attempt in range(6):
        shutil.rmtree(output, ignore_errors=True)
        processes = []
        for _ in range(2):
            processes.append(segue.start("apply", "--store", step["store"], "--checkpoint",
                                         step["base"], "--output", output, "--threads", 1))
            time.sleep(0.03 * attempt)
        codes = sorted(process.wait(timeout=60) for process in processes)
        for process in processes:
            process.communicate()
        # The second one sees the first at work, or its output.
        assert codes[0] == 0
        assert codes[1] in (EXIT_CODES["unavailable"], EXIT_CODES["invalid_argument"])
        assert same_files(output, step["target"])
        assert not (tmp_path / "output.segue-part").exists()


def test_output_must_be_a_new_name(segue, step, tmp_path):
    for name in (".", "x/.", "x/.."):
        segue.fails("invalid_argument", "apply", "--store", step["store"], "--checkpoint",
                    step["base"], "--output", f"{tmp_path}/{name}")
    assert not list(tmp_path.iterdir())


def test_links_in_the_state_folder_are_refused(segue, step, engine, tmp_path):
    outside = tmp_path / "outside"
    (outside / "apply").mkdir(parents=True)
    (outside / "apply" / "precious").write_text("x")
    for target in (outside, tmp_path / "nowhere"):
        (engine / ".segue").symlink_to(target)
        for arguments in (("apply", "--store", step["store"], "--checkpoint", engine),
                          ("resolve", "--checkpoint", engine)):
            message = segue.fails("invalid_argument", *arguments)
            assert str(engine / ".segue") in message
        (engine / ".segue").unlink()
    assert (outside / "apply" / "precious").exists() and not (tmp_path / "nowhere").exists()
    assert same_files(engine, step["base"])


def test_names_cannot_steer_the_terminal(segue, tmp_path):
    """C1 controls and marks that turn the direction of text, as well as bytes that are no UTF-8."""
    name = "a\x1b[31mb\u009b31mc\u202ed\u2066e\udc9bf\u00e9"
    done = subprocess.run(segue.command("verify", "--checkpoint", tmp_path / name),
                          capture_output=True, timeout=60, check=False)
    shown = done.stderr.decode()
    assert done.returncode == EXIT_CODES["not_found"]
    assert r"a\x1b[31mb\u009b31mc\u202ed\u2066e\x9bf" + "\u00e9" in shown
    done = subprocess.run(segue.command("verify", "--checkpoint", tmp_path / name, "--json"),
                          capture_output=True, timeout=60, check=False)
    json.loads(done.stdout)


def test_generate_refuses_what_no_disk_holds(segue, tmp_path):
    for size in ("9e18", "9e15", "1e14"):
        done = limited(segue, resource.RLIMIT_AS, 1 << 30, "generate", "--output", tmp_path / "run",
                       "--size", size, "--json")
        check_failure("resource_exhausted", done.returncode, done.stdout, done.stderr)
    assert not (tmp_path / "run").exists()
