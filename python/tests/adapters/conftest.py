# SPDX-License-Identifier: Apache-2.0
"""Tests of the adapters need torch; without it they are skipped with a sentence."""

import pytest

try:
    import torch  # noqa: F401
except ImportError:
    collect_ignore_glob = ["test_*.py"]

    def pytest_report_header(config):
        return "adapters: skipped, torch is not installed"


@pytest.fixture(autouse=True)
def _one_thread():
    import torch
    torch.set_num_threads(1)
