# SPDX-License-Identifier: Apache-2.0
"""tools/gpu_check against the fake driver: it goes through every part, says what is wrong, and
never gives a figure that no GPU has shown."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("SEGUE_BUILD_DIR", ROOT / "build"))

pytestmark = pytest.mark.skipif(not (BUILD / "segue_gpu_check").exists(),
                                reason="built without CUDA")


def run(tmp_path, *arguments, **environment):
    output = tmp_path / "report.json"
    done = subprocess.run([ROOT / "tools" / "gpu_check", "--build", BUILD, "--output", output,
                           *arguments], env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=300, check=False)
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
        "bits", "large", "machine", "apply", "density", "scrub", "product",
        "trainer", "pipeline"]
    assert report["fake"] and report["findings"] == [] and report["expectations"] > 400
    assert report["figures"] == [] and report["goals"] == []
    assert "fake CUDA device: " in done.stdout


def test_a_wrong_bit_is_found(tmp_path, packed):
    done, report = run(tmp_path, "--fake", "--packed", packed, SEGUE_FAKE_CUDA_FLIP="1")
    assert done.returncode == 1
    assert any("the weights are not the target" in line for line in report["findings"])
    assert "WRONG: " in done.stdout


@pytest.mark.parametrize("function", ("cuLaunchKernel", "cuMemcpyAsync"))
def test_a_driver_that_fails_is_found(tmp_path, packed, function):
    done, report = run(tmp_path, "--fake", "--packed", packed, SEGUE_FAKE_CUDA_FAIL=function)
    assert done.returncode == 1 and report["findings"]


def test_without_a_gpu_it_says_so(tmp_path, packed):
    if pathlib.Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU")
    done, report = run(tmp_path, "--packed", packed)
    assert done.returncode == 2 and report is None
    assert "no CUDA driver" in done.stderr
