# SPDX-License-Identifier: Apache-2.0
"""The program under test, and stores of the recorded trace that several tests read.

The binary is $SEGUE_BINARY, else segue in $SEGUE_BUILD_DIR, else build/segue.
"""

import os
import pathlib

import pytest

from e2e_support import TRACE, Segue, version_directory

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_binary():
    named = os.environ.get("SEGUE_BINARY")
    folder = os.environ.get("SEGUE_BUILD_DIR", ROOT / "build")
    return pathlib.Path(named) if named else pathlib.Path(folder) / "segue"


@pytest.fixture(scope="session")
def segue():
    binary = find_binary()
    if not binary.is_file():
        pytest.skip(f"there is no {binary}: build it, or name one with SEGUE_BINARY")
    return Segue(binary)


@pytest.fixture(scope="session")
def trace_stores(segue, tmp_path_factory):
    """{format: store} with versions 1 to 8 of the recorded trace."""
    stores = {}
    for name in ("bf16", "fp8", "nvfp4"):
        stores[name] = tmp_path_factory.mktemp("store-" + name)
        for version in range(1, 9):
            report = segue("publish", "--store", stores[name],
                           "--base", version_directory(name, version - 1),
                           "--target", version_directory(name, version))
            assert report["target_version"] == version and report["committed"]
    return stores


@pytest.fixture(scope="session")
def trace():
    return TRACE
