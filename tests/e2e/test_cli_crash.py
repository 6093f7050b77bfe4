# SPDX-License-Identifier: Apache-2.0
"""Case D1: an apply in place is killed at a random moment; what is left must be resolved to exactly
the base or exactly the target, by `resolve` or by the next apply, and never be reported as whole
before that."""

import filecmp
import pathlib
import random
import shutil
import subprocess
import time

import pytest

from e2e_support import EXIT_CODES

KILLS = 20
SEED = 20261129


@pytest.fixture(scope="module")
def run(segue, tmp_path_factory):
    """A store with one dense step, and the time that its apply takes once the journal is there."""
    folder = tmp_path_factory.mktemp("crash")
    base, target = segue("generate", "--output", folder / "run", "--preset", "bf16-10",
                         "--size", "64MiB", "--shards", 2)["directories"]
    segue("publish", "--store", folder / "store", "--base", base, "--target", target)
    engine = folder / "engine"
    shutil.copytree(base, engine)
    report = segue("apply", "--store", folder / "store", "--checkpoint", engine, "--threads", 1)
    return {"store": folder / "store", "base": pathlib.Path(base), "engine": engine,
            "target": pathlib.Path(target), "window_s": report["apply_s"] + report["sync_s"]}


def equal(left, right):
    return all(filecmp.cmp(left / path.name, path, shallow=False) for path in right.iterdir()
               if path.is_file())


def restore(run):
    shutil.rmtree(run["engine"])
    shutil.copytree(run["base"], run["engine"])


def kill_in_the_middle(segue, run, wait_for_journal, delay_s):
    """True if the process was killed, False if it was done before."""
    command = segue.command("apply", "--store", run["store"], "--checkpoint", run["engine"],
                            "--threads", 1)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        journal = run["engine"] / ".segue" / "apply" / "apply.json"
        while wait_for_journal and process.poll() is None and not journal.exists():
            time.sleep(0.0002)
        time.sleep(delay_s)
        process.kill()
        return process.wait() < 0


def check_interrupted_is_known(segue, run):
    """Between crash and resolve the weights may be mixed: nobody may take them for a version."""
    engine, store, never = run["engine"], run["store"], run["engine"].parent / "never"
    for arguments in (["verify", "--checkpoint", engine, "--store", store],
                      ["verify", "--checkpoint", run["base"], "--against", engine],
                      ["apply", "--store", store, "--checkpoint", engine, "--output", never],
                      ["publish", "--store", never, "--base", run["base"], "--target", engine],
                      ["publish", "--store", never, "--base", engine, "--target", run["base"]],
                      ["diff", engine, run["base"]], ["diff", run["base"], engine]):
        done = segue.run(*arguments)
        assert done.returncode == EXIT_CODES["tainted"], (arguments, done.stderr)
        assert "segue resolve" in done.stderr
    assert not never.exists()
    opened = segue("inspect", engine)["interrupted_apply"]
    assert opened["base_version"] == 0 and opened["target_version"] == 1


def test_kill_9_then_resolve(segue, run):  # case D1
    random_source = random.Random(SEED)
    outcomes = {"nothing_to_do": 0, "kept_base": 0, "finished_target": 0}
    for attempt in range(KILLS):
        restore(run)
        wait = attempt % 4 != 0  # Some before the journal, most after it.
        delay_s = random_source.uniform(0, 1.1 * run["window_s"] if wait else 0.3)
        kill_in_the_middle(segue, run, wait, delay_s)
        if (run["engine"] / ".segue" / "apply" / "apply.json").exists():
            check_interrupted_is_known(segue, run)
        report = segue("resolve", "--checkpoint", run["engine"])
        outcomes[report["outcome"]] += 1
        at_target = equal(run["engine"], run["target"])
        assert at_target or equal(run["engine"], run["base"]), (attempt, delay_s, report)
        if report["outcome"] == "finished_target":
            assert at_target and report["version"] == 1
        if report["outcome"] == "kept_base":  # Or killed while the journal was being removed.
            assert at_target == (report["version"] == 1)
        assert segue("resolve", "--checkpoint", run["engine"])["outcome"] == "nothing_to_do"
    print("outcomes:", outcomes)
    assert outcomes["finished_target"] > 0, "no kill hit an apply: the window is wrong"


def test_kill_9_then_apply_again(segue, run):  # case D1
    random_source = random.Random(SEED + 1)
    resolved = 0
    for _ in range(6):
        restore(run)
        kill_in_the_middle(segue, run, True, random_source.uniform(0, 0.5 * run["window_s"]))
        report = segue("apply", "--store", run["store"], "--checkpoint", run["engine"])
        resolved += report["resolved_first"]
        assert report["target_version"] == 1 and equal(run["engine"], run["target"])
    assert resolved > 0, "no kill hit an apply: the window is wrong"


def test_kill_9_while_resolving(segue, run):  # case D1
    random_source = random.Random(SEED + 2)
    restore(run)
    kill_in_the_middle(segue, run, True, 0.3 * run["window_s"])
    for _ in range(8):
        command = segue.command("resolve", "--checkpoint", run["engine"], "--threads", "1")
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            time.sleep(random_source.uniform(0, 0.1))
            process.kill()
            process.wait()
    segue("apply", "--store", run["store"], "--checkpoint", run["engine"])
    assert equal(run["engine"], run["target"])
