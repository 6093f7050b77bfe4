# SPDX-License-Identifier: Apache-2.0
"""Tests of the adapters: one thread of torch each, since the models are tiny and cores few. What
all tests of Python share lies in the folder above."""

import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))


@pytest.fixture(autouse=True)
def _one_thread():
    torch = pytest.importorskip("torch", reason="torch is not installed: engines hold its tensors")
    torch.set_num_threads(1)
