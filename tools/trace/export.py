# SPDX-License-Identifier: Apache-2.0
"""Turns FP32 master weights into the checkpoints of one version, one per format.

Names and layouts are those of published checkpoints, so that readers written for them work here:
- bf16: two shards and a model.safetensors.index.json;
- fp8: E4M3 matrices with FP32 `weight_scale_inv` per 128 x 128 block (the DeepSeek layout);
- nvfp4: packed E2M1 `weight`, E4M3 `weight_scale` per 16 elements, FP32 `weight_scale_2`
  (the ModelOpt layout).
As in those checkpoints only the decoder's matrices are quantised; embeddings, the output head and
the norms stay BF16.
"""

import json

import numpy as np

import quantise
from safetensors_file import Tensor, write_file

FORMATS = ("bf16", "fp8", "nvfp4")
SHARD_COUNT = 2


def version_name(version):
    return f"v{version:04d}"


def is_quantised(name, values):
    """Whether a tensor is quantised in fp8 and nvfp4."""
    return values.ndim == 2 and name.endswith("_proj.weight")


def _bf16(values):
    return Tensor("BF16", quantise.bf16_from_float(values))


def _float32(values):
    return Tensor("F32", np.asarray(values, dtype=np.float32).view(np.uint32))


def bf16_tensors(masters, _source="bf16"):
    return {name: _bf16(values) for name, values in masters.items()}


def _source_values(values, source):
    """What is quantised: the BF16 weights (as a converter sees them) or the FP32 master."""
    if source == "master":
        return values
    return quantise.float_from_bf16(quantise.bf16_from_float(values))


def fp8_tensors(masters, source="bf16"):
    tensors = {}
    for name, values in masters.items():
        if not is_quantised(name, values):
            tensors[name] = _bf16(values)
            continue
        codes, scales = quantise.fp8_quantise(_source_values(values, source))
        tensors[name] = Tensor("F8_E4M3", codes)
        tensors[name + "_scale_inv"] = _float32(scales)
    return tensors


def nvfp4_tensors(masters, source="bf16"):
    tensors = {}
    for name, values in masters.items():
        if not is_quantised(name, values):
            tensors[name] = _bf16(values)
            continue
        packed, scales, tensor_scale = quantise.nvfp4_quantise(_source_values(values, source))
        tensors[name] = Tensor("U8", packed)
        tensors[name + "_scale"] = Tensor("F8_E4M3", scales)
        tensors[name + "_scale_2"] = _float32(tensor_scale)
    return tensors


def _write_shards(directory, tensors):
    """Cuts tensors, in model order, into shards of about equal size and writes the index."""
    size = sum(tensor.bits.nbytes for tensor in tensors.values())
    shards, taken = [{} for _ in range(SHARD_COUNT)], 0
    for name, tensor in tensors.items():
        shards[min(taken * SHARD_COUNT // size, SHARD_COUNT - 1)][name] = tensor
        taken += tensor.bits.nbytes
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        file_name = f"model-{number:05d}-of-{SHARD_COUNT:05d}.safetensors"
        write_file(directory / file_name, shard)
        weight_map.update({name: file_name for name in shard})
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
    text = json.dumps(index, indent=2) + "\n"
    (directory / "model.safetensors.index.json").write_text(text)


def write_version(output, version, masters, formats, source):
    """Writes one version in every format asked for: output/FORMAT/vNNNN/."""
    makers = {"bf16": bf16_tensors, "fp8": fp8_tensors, "nvfp4": nvfp4_tensors}
    for name in formats:
        directory = output / name / version_name(version)
        directory.mkdir(parents=True)
        tensors = makers[name](masters, source)
        if name == "bf16":
            _write_shards(directory, tensors)
        else:
            write_file(directory / "model.safetensors", tensors)
