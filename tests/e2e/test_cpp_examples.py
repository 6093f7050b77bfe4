# SPDX-License-Identifier: Apache-2.0
"""The C++ API as others use it: installed into a prefix of its own, found with find_package, and
the three programs of examples/cpp built against it, with this tree out of sight."""

import os
import pathlib
import shutil
import subprocess

import pytest

from e2e_support import version_directory
from live_support import Serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SEGUE_BUILD_DIR", ROOT / "build"))


def run(*command):
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    if not (BUILD / "CMakeCache.txt").is_file():
        pytest.skip(f"{BUILD} is no build folder: ./dev build")
    folder = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", BUILD, "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def programs(prefix, tmp_path_factory):
    source = shutil.copytree(ROOT / "examples" / "cpp", tmp_path_factory.mktemp("cpp") / "source")
    build = source.parent / "build"
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_CXX_FLAGS=-Werror", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    run("cmake", "--build", build)
    return build


def result_of(text):
    lines = [line for line in text.splitlines() if line.startswith("result ")]
    assert len(lines) == 1, text
    return lines[0]


def test_the_installed_program_runs_and_headers_are_the_public_ones(prefix):
    assert "usage" in run(prefix / "bin" / "segue", "--help").lower()
    installed = {path.name for path in (prefix / "include" / "segue").iterdir()}
    public = {path.name for path in (ROOT / "include" / "segue").glob("*.h")}
    assert installed == public - {"bench.h", "measurements.h"}
    assert [path.name for path in (prefix / "include").iterdir()] == ["segue"]


def test_a_sampler_takes_what_a_trainer_publishes(programs, tmp_path):
    store = tmp_path / "store"
    trained = run(programs / "trainer", store, 5)
    assert trained.count("version ") == 5
    sampled = run(programs / "sampler", store, 5)
    assert "version 5: pause" in sampled
    assert result_of(sampled) == result_of(trained)


def test_a_sampler_that_is_there_first_follows_to_the_end(programs, tmp_path):
    store = tmp_path / "store"
    sampler = subprocess.Popen([str(programs / "sampler"), str(store), "3"],
                               stdout=subprocess.PIPE, text=True)
    try:
        trained = run(programs / "trainer", store, 3)
        output, _ = sampler.communicate(timeout=60)
    finally:
        sampler.kill()
        sampler.wait()
    assert sampler.returncode == 0
    assert result_of(output) == result_of(trained)


def test_an_engine_attaches_to_a_segment(programs, segue, trace_stores):
    serving = Serving(segue.binary, f"cpp-example-{os.getpid()}", "--store", trace_stores["bf16"],
                      "--checkpoint", version_directory("bf16", 0), "--listen", "127.0.0.1:0")
    try:
        serving.start()
        output = run(programs / "attached", serving.segment.path.name.removeprefix("segue-"), 8)
        assert output.startswith("version 8: result ")
        assert serving.stop() == 0
    finally:
        serving.segment.remove()
