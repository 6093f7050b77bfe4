# SPDX-License-Identifier: Apache-2.0
"""The example with Ray, whole: it is short enough."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

RUN = pathlib.Path(__file__).with_name("run.py")


@pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="Ray is not installed")
def test_samplers_follow_one_is_rebuilt_and_all_weights_are_equal():
    done = subprocess.run([sys.executable, RUN, "--steps", "8"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[-1] == "verified"
    published = [line for line in lines if line.startswith("version ")]
    assert len(published) == 8
    # Rollouts of later versions show that samplers have followed.
    assert int(re.search(r"of sampler \d, version (\d+)", published[-1]).group(1)) > 1
    rebuilt = re.search(r"killed \(process (\d+)\); process (\d+) went from version 1 to (\d+)",
                        done.stdout)
    assert rebuilt and rebuilt.group(1) != rebuilt.group(2) and int(rebuilt.group(3)) > 2
