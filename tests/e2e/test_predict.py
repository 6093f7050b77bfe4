# SPDX-License-Identifier: Apache-2.0
"""`segue predict`: sizes against what a real publish writes, the arithmetic against the formulas of
docs/performance.md done here, and models kept apart from measurements."""

import json
import math

import pytest


def by_name(report):
    return {stage["stage"]: stage for stage in report["stages"]}


@pytest.mark.parametrize("preset, format", (("nvfp4-0.085", "nvfp4"), ("fp8-0.07", "fp8"),
                                            ("bf16-1", "bf16")))
def test_sizes_are_those_of_a_real_update(segue, tmp_path, preset, format):
    real = segue("bench", "--size", "16MiB", "--preset", preset, "--repeats", 1,
                 "--directory", tmp_path)
    model = segue("predict", "--model-bytes", real["model_bytes"], "--density", real["density"],
                  "--format", format)["sizes"]
    sparse = real["profiles"]["sparse-zstd"]
    assert model["changed_elements"] == pytest.approx(real["changed_elements"], rel=1e-6)
    assert model["entropy_bound_bytes"] == pytest.approx(real["entropy_bound_bytes"], rel=0.03)
    assert model["payload_bytes"] == pytest.approx(sparse["payload_bytes"], rel=0.05)
    assert model["staged_bytes"] == pytest.approx(sparse["staged_bytes"], rel=0.05)


def test_the_reference_run(segue):
    report = segue("predict", "--model-bytes", 445e9, "--gpus", 8, "--density", 0.00085,
                   "--gpu", "b300")
    touched = 445e9 / 32 * (1 - (1 - 0.00085) ** 64)
    assert report["sizes"]["touched_sectors"] == pytest.approx(touched)
    stages = by_name(report)
    assert stages["compare old and new"]["seconds"] == pytest.approx(2 * 445e9 / 8 / (8e12 * 0.9))
    pause = touched / 8 * 64 * 2.5 / (8e12 * 0.9) + 20e-6
    assert report["pause_seconds"] == pytest.approx(pause)
    assert report["dense_pause"]["seconds"] == pytest.approx(445e9 / 8 / 800e9)
    total = sum(stage["seconds"] for stage in report["stages"] if stage["place"] != "pause")
    assert report["until_ready_seconds"] == pytest.approx(total)
    assert {stage["kind"] for stage in report["stages"]} == {"model"}
    assert report["measured"] == []


def test_every_gpu_and_more_of_them(segue):
    pauses = [segue("predict", "--model-bytes", "100GB", "--density", 0.01, "--gpu", gpu)
              ["pause_seconds"] for gpu in ("a100", "h100", "h200", "b200")]
    assert pauses == sorted(pauses, reverse=True) and len(set(pauses)) == 4
    whole = segue("predict", "--model-bytes", "100GB", "--density", 0.01)
    shared = segue("predict", "--model-bytes", "100GB", "--density", 0.01, "--gpus", 4)
    assert by_name(shared)["preflight"]["seconds"] == pytest.approx(
        by_name(whole)["preflight"]["seconds"] / 4)
    assert by_name(shared)["fetch"] == by_name(whole)["fetch"]


def test_ends_of_the_range(segue):
    for density in (0, "-0"):
        nothing = segue("predict", "--model-bytes", "1GB", "--density", density)
        assert nothing["pause_seconds"] == 0 and nothing["sizes"]["payload_bytes"] == 0
    most = segue("predict", "--model-bytes", "1GB", "--density", 0.125, "--format", "BF16")
    assert all(math.isfinite(stage["seconds"]) for stage in most["stages"])


@pytest.mark.parametrize("format, density", (("bf16", 0.13), ("nvfp4", 0.07), ("fp8", 1)))
def test_where_the_encoder_is_no_longer_sparse_nothing_is_said(segue, format, density):
    message = segue.fails("unsupported", "predict", "--model-bytes", "1GB", "--density", density,
                          "--format", format)
    assert "the model covers up to" in message


def test_memory_that_does_not_fit_is_said(segue):
    arguments = ("predict", "--model-bytes", 671e9, "--density", 0.002, "--gpus", 8,
                 "--format", "fp8")
    memory = segue(*arguments)["memory_of_one_gpu"]
    assert memory["has"] == 141e9 and memory["trainer"] == pytest.approx(2 * 671e9 / 8)
    done = segue.run(*arguments)
    assert "warning: a trainer's weights and baseline, 168 GB, do not fit" in done.stderr
    assert "an engine's share" not in done.stderr
    assert "an engine's share" in segue.run(*arguments, "--gpu", "H100").stderr


def test_measurements_stand_beside_the_model(segue, tmp_path):
    run = {"device": "NVIDIA H200", "fake": False,
           "figures": [{"name": "apply with proof", "workload": "nvfp4-0.085",
                        "model_bytes": 55.6e9, "seconds": 0.00321}]}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run))
    arguments = ("predict", "--model-bytes", 445e9, "--density", 0.00085, "--measured", path)
    assert segue(*arguments)["measured"] == [
        {"stage": "apply with proof", "kind": "measurement", "device": "NVIDIA H200",
         "workload": "nvfp4-0.085", "model_bytes": 55.6e9, "seconds": 0.00321}]
    text = segue.text(*arguments)
    assert text.startswith("model, not measured: ")
    assert "measured on NVIDIA H200:" in text and "3.21 ms" in text


@pytest.mark.parametrize("text, code", (
    ("{", "corruption"), ("[]", "corruption"), ('{"figures": [1], "fake": false}', "corruption"),
    ('{"figures": [{"name": 1, "seconds": 2}], "fake": false}', "corruption"),
    ('{"figures": []}', "corruption"), ('{"figures": [], "fake": true}', "corruption"),
    ('{"figures": [{"name": "a", "seconds": 1, "workload": 5}], "fake": false}', "corruption"),
    ('{"figures": [], "fake": "no"}', "corruption")))
def test_files_that_are_no_measurement(segue, tmp_path, text, code):
    path = tmp_path / "run.json"
    path.write_text(text)
    segue.fails(code, "predict", "--model-bytes", "1GB", "--density", 0.01, "--measured", path)


@pytest.mark.parametrize("arguments", (
    ("--density", 2), ("--density", -0.1), ("--density", "nan"), ("--density", 0.1, "--gpus", 0),
    ("--density", 0.1, "--gpu", "abacus"), ("--density", 0.1, "--format", "int3"),
    ("--density", 0.1, "--link-gbps", 0), ("--density", 0.1, "--link-gbps", "inf"),
    ("--density", 0.1, "--link-gbps", 1e-310), ("--density", 0.1, "--threads", 0),
    ("--density", 0.1, "--gpus", 17), ("--density", 0.1, "--model-bytes", 1), ()))
def test_calls_that_make_no_sense(segue, arguments):
    size = () if "--model-bytes" in arguments else ("--model-bytes", "1GB")
    segue.fails("invalid_argument", "predict", *size, *arguments)


def test_a_file_that_is_not_there(segue, tmp_path):
    segue.fails("not_found", "predict", "--model-bytes", "1GB", "--density", 0.01,
                "--measured", tmp_path / "none.json")
