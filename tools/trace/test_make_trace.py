# SPDX-License-Identifier: Apache-2.0
"""Tests of the trace maker: quantisers by known values, files by their bytes, statistics by hand.

The quantisers, the file format and the statistics run on numpy alone; only the training needs torch
and skips with a sentence where it is missing. The kept trace is checked against its own record, so
that a damaged test file is told from a bug in Segue.

    python -m pytest tools/trace
"""

import hashlib
import json
import pathlib
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import export  # noqa: E402
import quantise  # noqa: E402
import trace_stats  # noqa: E402
from safetensors_file import Tensor, read_file, read_version, write_file  # noqa: E402

KEPT = HERE.parent.parent / "tests" / "data" / "trace"
KEPT_SIZE_MAX = 12_000_000


@pytest.fixture(autouse=True)
def torch_as_before():
    """Making a trace sets what holds for the whole process, and so for the tests after these."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.use_deterministic_algorithms(False)


def floats(*bits):
    return np.array(bits, dtype=np.uint32).view(np.float32)


def as_list(codes):
    return [int(code) for code in codes]


# Quantisers


def test_bf16_rounds_to_nearest_even():
    values = floats(0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7FFFFF)
    # Exact; tie down to even; tie up to even; just above; just below; overflow to infinity.
    assert as_list(quantise.bf16_from_float(values)) == [
        0x3F80, 0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80,
    ]


def test_bf16_keeps_negative_zero_nan_payload_and_denormals():
    values = floats(0x80000000, 0x7F800001, 0xFFFFFFFF, 0x7FC10000, 0xFF800000, 0x00018000)
    assert as_list(quantise.bf16_from_float(values)) == [
        0x8000, 0x7FC0, 0xFFFF, 0x7FC1, 0xFF80, 0x0002,
    ]


def test_bf16_every_code_round_trips():
    codes = np.arange(1 << 16, dtype=np.uint16)
    is_signalling = ((codes & 0x7F80) == 0x7F80) & ((codes & 0x7F) != 0) & ((codes & 0x40) == 0)
    again = quantise.bf16_from_float(quantise.float_from_bf16(codes))
    assert (again == np.where(is_signalling, codes | 0x40, codes)).all()


def test_e2m1_table_ties_and_saturation():
    exact = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
    assert as_list(quantise.e2m1_from_float(exact)) == list(range(8))
    assert as_list(quantise.e2m1_from_float(-exact)) == list(range(8, 16))
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=np.float32)
    assert as_list(quantise.e2m1_from_float(ties)) == [0, 2, 2, 4, 4, 6, 6]
    beyond = np.array([7, np.inf, -1e30], dtype=np.float32)
    assert as_list(quantise.e2m1_from_float(beyond)) == [7, 7, 15]
    with pytest.raises(ValueError, match="NaN"):
        quantise.e2m1_from_float(np.array([np.nan], dtype=np.float32))


def test_e4m3_known_values_and_saturation():
    values = np.array(
        [0, 1, 1.5, 448, 464, 465, 1e9, np.inf, 2**-9, 2**-10, 3 * 2**-10, 2**-6, 0.9375 * 2**-6],
        dtype=np.float32,
    )
    assert as_list(quantise.e4m3_from_float(values)) == [
        0x00, 0x38, 0x3C, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0x01, 0x00, 0x02, 0x08, 0x08,
    ]
    special = quantise.e4m3_from_float(floats(0x80000000, 0x7FC00000, 0xFFC00000))
    assert as_list(special) == [0x80, 0x7F, 0xFF]


def test_e4m3_every_code_round_trips_and_rounds_to_nearest():
    codes = np.arange(256, dtype=np.uint8)
    assert (quantise.e4m3_from_float(quantise.E4M3_VALUES[codes]) == codes).all()
    low, high = quantise.E4M3_VALUES[:0x7E], quantise.E4M3_VALUES[1:0x7F]
    middle = (low + high) / 2
    even = np.where(np.arange(0x7E) % 2 == 0, np.arange(0x7E), np.arange(1, 0x7F))
    assert (quantise.e4m3_from_float(middle) == even).all()
    assert (quantise.e4m3_from_float(np.nextafter(middle, low)) == np.arange(0x7E)).all()
    assert (quantise.e4m3_from_float(np.nextafter(middle, high)) == np.arange(1, 0x7F)).all()


def test_fp8_partial_blocks_have_their_own_scales():
    values = np.zeros((130, 200), dtype=np.float32)
    values[0, 0], values[0, 199], values[129, 0] = 448, -4.48, 44.8
    codes, scales = quantise.fp8_quantise(values)
    assert codes.shape == (130, 200) and scales.shape == (2, 2)
    assert scales == pytest.approx(np.array([[1, 0.01], [0.1, 1]], dtype=np.float32))
    assert (codes[0, 0], codes[0, 199], codes[129, 0]) == (0x7E, 0xFE, 0x7E)
    assert np.count_nonzero(codes) == 3
    assert quantise.fp8_dequantise(codes, scales) == pytest.approx(values)


def test_nvfp4_by_hand():
    values = np.zeros((2, 20), dtype=np.float32)
    # First block spans the tensor's range; the second, partial one has a sixteenth of it.
    values[0, :4] = [2688, -1344, 448, -0.0]
    values[0, 16:20] = [168, 84, -168, 28]
    packed, scales, tensor_scale = quantise.nvfp4_quantise(values)
    assert packed.shape == (2, 10) and scales.shape == (2, 2) and tensor_scale.shape == ()
    assert tensor_scale == 1.0
    # 448, 168 / 6 = 28; blocks of zeros take the smallest scale, never zero.
    assert quantise.E4M3_VALUES[scales].tolist() == [[448, 28], [2**-9, 2**-9]]
    assert as_list(quantise.unpack_nibbles(packed)[0, :4]) == [7, 8 + 5, 2, 8]
    assert as_list(packed[0, :2]) == [0xD7, 0x82]
    assert as_list(quantise.unpack_nibbles(packed)[0, 16:]) == [7, 5, 15, 2]
    assert (quantise.nvfp4_dequantise(packed, scales, tensor_scale) == values).all()


def test_quantisers_refuse_what_they_cannot_hold():
    for quantiser in (quantise.fp8_quantise, quantise.nvfp4_quantise):
        with pytest.raises(ValueError, match="finite"):
            quantiser(np.array([[1, np.nan]], dtype=np.float32))
        with pytest.raises(ValueError, match="matrix"):
            quantiser(np.zeros(16, dtype=np.float32))
    with pytest.raises(ValueError, match="even"):
        quantise.nvfp4_quantise(np.ones((1, 17), dtype=np.float32))


# Files


def test_safetensors_bits_survive(tmp_path):
    tensors = {
        "b": Tensor("BF16", np.array([[0x8000, 0x7FC1, 0xFF81]], dtype=np.uint16)),
        "a": Tensor("U8", np.arange(5, dtype=np.uint8)),
        "scale": Tensor("F32", np.array(0x7FA00001, dtype=np.uint32)),
    }
    path = tmp_path / "x.safetensors"
    write_file(path, tensors)
    data = path.read_bytes()
    header_size = int.from_bytes(data[:8], "little")
    assert header_size % 8 == 0
    assert len(data) == 8 + header_size + 4 + 6 + 5
    assert data[8 + header_size :] == bytes.fromhex("0100a07f 0080c17f81ff 0001020304")
    again = read_file(path)
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert again[name].dtype == tensor.dtype
        assert again[name].bits.shape == tensor.bits.shape
        assert (again[name].bits == tensor.bits).all()


def test_safetensors_file_is_that_of_the_package(tmp_path):
    package = pytest.importorskip("safetensors", reason="the safetensors package is not installed")
    numpy_door = pytest.importorskip("safetensors.numpy")
    del package
    values = {"w": np.arange(6, dtype=np.uint8).reshape(2, 3), "s": np.ones(2, dtype=np.float32)}
    write_file(tmp_path / "x.safetensors", {
        "w": Tensor("U8", values["w"]), "s": Tensor("F32", values["s"].view(np.uint32)),
    })
    loaded = numpy_door.load_file(tmp_path / "x.safetensors")
    assert all((loaded[name] == value).all() for name, value in values.items())
    theirs = numpy_door.save(values, metadata={"format": "pt"})
    assert (tmp_path / "x.safetensors").read_bytes() == theirs


def masters_example():
    random = np.random.default_rng(3)
    shapes = {
        "model.embed_tokens.weight": (10, 40),
        "model.layers.0.self_attn.q_proj.weight": (130, 40),
        "model.norm.weight": (40,),
    }
    return {name: random.normal(0, 0.02, shape).astype("f4") for name, shape in shapes.items()}


def test_export_sizes_dtypes_and_index(tmp_path):
    export.write_version(tmp_path, 0, masters_example(), export.FORMATS, "bf16")
    matrix = "model.layers.0.self_attn.q_proj.weight"
    bf16, fp8, nvfp4 = (read_version(tmp_path / name / "v0000") for name in export.FORMATS)
    assert {tensor.dtype for tensor in bf16.values()} == {"BF16"} and len(bf16) == 3
    assert (fp8[matrix].dtype, fp8[matrix].bits.shape) == ("F8_E4M3", (130, 40))
    assert (fp8[matrix + "_scale_inv"].dtype, fp8[matrix + "_scale_inv"].bits.shape) == (
        "F32", (2, 1),
    )
    assert (nvfp4[matrix].dtype, nvfp4[matrix].bits.shape) == ("U8", (130, 20))
    assert (nvfp4[matrix + "_scale"].dtype, nvfp4[matrix + "_scale"].bits.shape) == (
        "F8_E4M3", (130, 3),
    )
    assert (nvfp4[matrix + "_scale_2"].dtype, nvfp4[matrix + "_scale_2"].bits.shape) == ("F32", ())
    for tensors in (fp8, nvfp4):
        assert tensors["model.embed_tokens.weight"].dtype == "BF16"
        assert tensors["model.norm.weight"].dtype == "BF16"
    directory = tmp_path / "bf16" / "v0000"
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 2 * (10 * 40 + 130 * 40 + 40)
    assert set(index["weight_map"].values()) == {
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
    }
    for name, file_name in index["weight_map"].items():
        assert name in read_file(directory / file_name)


def test_scales_follow_the_source_they_are_made_from():
    masters = {"x_proj.weight": floats(0x3F800001).reshape(1, 1).repeat(16, axis=1)}
    name = "x_proj.weight_scale_inv"
    from_bf16 = export.fp8_tensors(masters, "bf16")[name].bits
    from_master = export.fp8_tensors(masters, "master")[name].bits
    assert from_bf16.view(np.float32) == np.float32(1) / np.float32(448)
    assert (from_bf16 != from_master).all()


# Statistics


def bf16_version(*codes):
    return {"w": Tensor("BF16", np.array(codes, dtype=np.uint16))}


def test_statistics_by_hand():
    # 1.0 -> next; 2.0 -> the value below (carry through the exponent); NaN stays; 0 -> -0.
    base = bf16_version(0x3F80, 0x4000, 0x7FC1, 0x0000, 0xBF80, 0x3F80, 0x3F80, 0x3F80)
    next_ = bf16_version(0x3F81, 0x3FFF, 0x7FC1, 0x8000, 0xBF80, 0x3F80, 0x3F80, 0x3F80)
    last = bf16_version(0x3F80, 0x3FFF, 0x7FC1, 0x8000, 0xBF82, 0x3F80, 0x3F80, 0x3F80)
    step, masks = trace_stats.compare(base, next_, base, None)
    first = step["groups"]["bf16"]
    assert (first["elements"], first["changed"], first["changed_share"]) == (8, 3, 0.375)
    assert first["ulp1_share"] == pytest.approx(2 / 3, abs=1e-7)
    assert first["multi_bit_share"] == pytest.approx(1 / 3, abs=1e-7)
    assert first["upper_half_share"] == pytest.approx(2 / 3, abs=1e-7)
    assert first["repeat_share"] is None
    # XORs are 0x0001, 0x7FFF and 0x8000.
    counts = [2] + [1] * 15
    assert first["xor_bit_share"] == pytest.approx([count / 3 for count in counts], abs=1e-7)
    assert first["magnitude_changed"] == 1.0
    assert first["magnitude_all"] == pytest.approx((1 + 2 + 0 + 4) / 7, abs=1e-7)
    # Low and high byte of the second element, one byte of each of the others.
    assert step["bytes_changed_share"] == 4 / 16
    step, _ = trace_stats.compare(next_, last, base, masks)
    second = step["groups"]["bf16"]
    assert (second["changed"], second["repeat_share"]) == (2, 0.5)
    assert second["ulp1_share"] == 0.5
    assert second["changed_from_base_share"] == 3 / 8


def test_statistics_count_nibbles_and_scales():
    def version(low, scale):
        packed = np.full((1, 8), 0x21, dtype=np.uint8)
        packed[0, 0] = 0x20 | low
        return {
            "p.weight": Tensor("U8", packed),
            "p.weight_scale": Tensor("F8_E4M3", np.array([[scale]], dtype=np.uint8)),
            "p.weight_scale_2": Tensor("F32", np.array(0x3F800000, dtype=np.uint32)),
        }

    source, target = version(1, 0x38), version(2, 0x39)
    groups = trace_stats.compare(source, target, source, None)[0]["groups"]
    assert (groups["codes"]["elements"], groups["codes"]["changed"]) == (16, 1)
    assert groups["codes"]["xor_bit_share"] == [1, 1, 0, 0]
    assert groups["codes"]["magnitude_changed"] == 0.5
    assert groups["codes"]["magnitude_all"] == 0.75
    assert groups["block_scales"]["changed_share"] == 1
    assert groups["tensor_scales"]["changed_share"] == 0


def test_statistics_refuse_unlike_versions():
    with pytest.raises(ValueError, match="different tensors"):
        trace_stats.compare(bf16_version(1), {}, bf16_version(1), None)
    with pytest.raises(ValueError, match="shape"):
        trace_stats.compare(bf16_version(1), bf16_version(1, 2), bf16_version(1), None)


# Training


def run_tiny(output, *more):
    import make_trace

    make_trace.make_trace(["--output", str(output), "--preset", "tiny", "--steps", "1", *more])
    return json.loads((output / "trace.json").read_text())


def test_one_step_repeats_exactly_and_follows_the_seed(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed, so nothing can be trained")
    first, second = run_tiny(tmp_path / "a"), run_tiny(tmp_path / "b")
    assert first == second
    assert len(first["files"]) == 2 * (3 + 1 + 1)
    other = run_tiny(tmp_path / "c", "--seed", "2")
    assert all(other["files"][name] != record for name, record in first["files"].items()
               if name.endswith(".safetensors"))


def test_rounding_equals_that_of_torch():
    torch = pytest.importorskip("torch", reason="torch is not installed, so nothing to compare")
    values = np.random.default_rng(5).normal(0, 300, 100_000).astype(np.float32)
    tensor = torch.from_numpy(values)
    theirs = tensor.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert (quantise.bf16_from_float(values) == theirs).all()
    inside = np.clip(values, -448, 448)
    for scale in (1.0, 1e-3, 1e-5):
        scaled = inside * np.float32(scale)
        theirs = torch.from_numpy(scaled).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
        assert (quantise.e4m3_from_float(scaled) == theirs).all()


def test_policy_gradient_raises_the_reward(tmp_path):
    """The recorded steps are learning, not noise: at a larger rate the reward rises."""
    pytest.importorskip("torch", reason="torch is not installed, so nothing can be trained")
    trace = run_tiny(
        tmp_path / "a", "--pretrain-steps", "120", "--steps", "30", "--lr", "1e-3",
        "--formats", "bf16",
    )
    rewards = [step["reward"] for step in trace["steps"]]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5


# The kept trace


def kept_record():
    if not (KEPT / "trace.json").exists():
        pytest.skip("the kept trace is not in this checkout")
    return json.loads((KEPT / "trace.json").read_text())


def test_kept_trace_is_whole_and_small():
    record = kept_record()
    for name, expected in record["files"].items():
        data = (KEPT / name).read_bytes()
        found = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        assert found == expected, name
    on_disk = {p.relative_to(KEPT).as_posix() for p in KEPT.rglob("*") if p.is_file()}
    assert on_disk == set(record["files"]) | {"trace.json"}
    assert sum((KEPT / name).stat().st_size for name in on_disk) <= KEPT_SIZE_MAX
    for name in export.FORMATS:
        assert len(record["formats"][name]) == 8


def test_kept_statistics_are_those_of_the_files():
    record = kept_record()
    for name, steps in record["formats"].items():
        assert trace_stats.measure(KEPT / name) == steps
