# SPDX-License-Identifier: Apache-2.0
"""What engines find by themselves: the entry points of the package, as it declares them and as it
is installed."""

import importlib
import importlib.metadata
import pathlib

import pytest

GROUPS = {"vllm.general_plugins": "segue.adapters.vllm:register",
          "sglang.srt.plugins": "segue.adapters.sglang:register"}


@pytest.mark.parametrize("group", GROUPS)
def test_the_package_declares_its_plugins(group):
    tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 reads no TOML")
    project = pathlib.Path(__file__).resolve().parents[3] / "pyproject.toml"
    declared = tomllib.loads(project.read_text())["project"]["entry-points"]
    assert declared[group] == {"segue": GROUPS[group]}
    module, name = GROUPS[group].split(":")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("group", GROUPS)
def test_the_installed_package_offers_its_plugins(group):
    try:
        importlib.metadata.distribution("segue")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("segue is on the path here, not installed")
    found = importlib.metadata.entry_points(group=group)
    assert GROUPS[group] in [entry.value for entry in found if entry.name == "segue"]
