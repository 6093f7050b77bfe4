# SPDX-License-Identifier: Apache-2.0
"""tools/gpu_check against the fake driver: it goes through every part, says what is wrong, and
never gives a figure that no GPU has shown."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("SEGUE_BUILD_DIR", ROOT / "build"))

pytestmark = pytest.mark.skipif(not (BUILD / "segue_gpu_check").exists(),
                                reason="built without CUDA")


def run(tmp_path, *arguments, **environment):
    output = tmp_path / "report.json"
    done = subprocess.run([sys.executable, ROOT / "tools" / "gpu_check", "--build", BUILD,
                           "--output", output, *arguments], env={**os.environ, **environment},
                          capture_output=True, text=True, timeout=300, check=False)
    return done, json.loads(output.read_text()) if output.exists() else None


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    done, _ = run(folder, "--pack", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_part_on_the_fake_driver_packed_or_not(tmp_path, packed):
    done, report = run(tmp_path, "--fake", "--packed", packed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [part["name"] for part in report["parts"]] == [
        "bits", "large", "machine", "apply", "decoders", "density", "scrub", "product",
        "trainer", "pipeline"]
    assert report["fake"] and report["findings"] == [] and report["expectations"] > 400
    assert report["figures"] == [] and report["goals"] == []
    assert "fake CUDA device: " in done.stdout
    # The fake GPU has no engine, and the fake nvCOMP is there.
    assert any("decoder engine: not there" in line for line in report["skipped"])
    assert not any("nvcomp" in line for line in report["skipped"])


@pytest.fixture
def stub(tmp_path, packed):
    """A bundle whose program is a script of the test's."""
    folder = tmp_path / "stub"
    shutil.copytree(packed, folder)

    def write(script):
        program = folder / "segue_gpu_check"
        program.unlink(missing_ok=True)
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(0o755)
        return folder
    return write


WHOLE = ('{"device": "G", "fake": false, "parts": [{"name": "p"}], "expectations": 1, '
         '"findings": [], "skipped": [], "figures": [], "goals": []}')
FIGURE = '{"name": "scrub", "workload": "w", "model_bytes": 1, "seconds": 2.5, "details": {}}'


@pytest.mark.parametrize("script, found", (
    ("kill -11 $$", "bits: ended with -11"), ("exit 134", "bits: ended with 134"),
    ("echo no json", "bits: ended with 0"), ("printf '\\377{'", "bits: ended with 0")))
def test_a_part_that_ends_oddly_is_a_finding_and_the_others_run(tmp_path, stub, script, found):
    folder = stub(f'if [ "$2" = bits ]; then {script}; else echo \'{WHOLE}\'; fi')
    done, report = run(tmp_path, "--packed", folder)
    assert done.returncode == 1, done.stderr
    assert found in report["findings"][0] and len(report["findings"]) == 1
    assert len(report["parts"]) == 9 and report["device"] == "G"


def test_what_a_part_told_before_it_was_cut_off_is_kept(tmp_path, stub):
    folder = stub(f"echo 'figures {FIGURE}' >&2; echo 'findings \"odd\"' >&2; kill -9 $$")
    done, report = run(tmp_path, "--packed", folder)
    assert done.returncode == 1
    assert report["figures"][0] == json.loads(FIGURE) and "odd" in report["findings"]


def test_what_cannot_be_run_or_written(tmp_path, stub, packed):
    done, report = run(tmp_path, "--packed", tmp_path / "none")
    assert done.returncode == 2 and report is None and "there is no segue_gpu_check" in done.stderr
    done, _ = run(tmp_path, "--fake", "--packed", packed, "--output", tmp_path / "no" / "file")
    assert done.returncode == 2 and "No such file" in done.stderr
    done, _ = run(tmp_path, "--pack", tmp_path, "--packed", packed)
    assert done.returncode == 2 and "not allowed with" in done.stderr
    shutil.copy2(packed / "gpu_check", tmp_path / "gpu_check")
    alone = subprocess.run([tmp_path / "gpu_check"], capture_output=True, text=True, check=False)
    assert alone.returncode == 2 and "this is no copy of the repository" in alone.stderr


def test_a_bundle_says_which_commit_it_is_of(tmp_path, stub):
    folder = stub(f"echo '{WHOLE}'")
    (folder / "revision.txt").write_text("0123abc\n")
    done, report = run(tmp_path, "--packed", folder, PATH=str(tmp_path))  # No git.
    assert done.returncode == 0, done.stderr
    assert report["commit"] == "0123abc"


def test_a_wrong_bit_is_found(tmp_path, packed):
    done, report = run(tmp_path, "--fake", "--packed", packed, SEGUE_FAKE_CUDA_FLIP="1")
    assert done.returncode == 1
    assert any("the weights are not the target" in line for line in report["findings"])
    assert "WRONG: " in done.stdout


# A device launches each kernel once when it is opened; what fails is behind that.
@pytest.mark.parametrize("function, skip", (("cuLaunchKernel", 100), ("cuMemcpyAsync", 0)))
def test_a_driver_that_fails_is_found(tmp_path, packed, function, skip):
    done, report = run(tmp_path, "--fake", "--packed", packed, SEGUE_FAKE_CUDA_FAIL=function,
                       SEGUE_FAKE_CUDA_SKIP=str(skip))
    assert done.returncode == 1 and report["findings"]


def test_kernels_that_cannot_be_launched_are_said(tmp_path, packed):
    done, _ = run(tmp_path, "--fake", "--packed", packed, SEGUE_FAKE_CUDA_FAIL="cuLaunchKernel")
    assert done.returncode == 2 and "cuLaunchKernel: CUDA_ERROR_FAKE" in done.stderr


def test_without_a_gpu_it_says_so(tmp_path, packed):
    if pathlib.Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU")
    done, report = run(tmp_path, "--packed", packed)
    assert done.returncode == 2 and report is None
    assert "no CUDA driver" in done.stderr
