# SPDX-License-Identifier: Apache-2.0
"""Writes torch tensors as one safetensors file, for tests that begin with a checkpoint."""

import json

import torch

from segue.distributed.partitions import spec_of


def write(path, tensors):
    """All of them, in order."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        spec = spec_of(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        one = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": spec.dtype, "shape": list(spec.shape),
                        "data_offsets": [len(data), len(data) + len(one)]}
        data += one
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
