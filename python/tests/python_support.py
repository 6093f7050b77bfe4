# SPDX-License-Identifier: Apache-2.0
"""What the tests of the package share: a small model, a trainer's steps, comparison of bytes."""

import numpy as np

import segue


def make_model(seed=1):
    """A model of several dtypes as numpy arrays, the same for the same seed."""
    random = np.random.default_rng(seed)
    return {
        "embed.weight": random.standard_normal((64, 96)).astype(np.float32),
        "layer.0.weight": random.standard_normal((300, 200)).astype(np.float16),
        "layer.1.weight": random.standard_normal((40, 7)).astype(np.float64),
        "layer.2.ids": random.integers(0, 255, (33, 5), dtype=np.uint8),
        "empty": np.zeros((0, 4), np.float32),
        "scale": np.array(0.5, np.float32),
    }


def step(model, seed):
    """Changes some bits of every tensor, in place."""
    random = np.random.default_rng(1000 + seed)
    for array in model.values():
        flat = array.reshape(-1).view(np.uint8)
        if flat.size:
            at = random.integers(0, flat.size, max(1, flat.size // 500))
            flat[at] ^= np.uint8(1 + seed % 7)


def copy_of(model):
    """The same bytes in other memory."""
    return {name: array.copy() for name, array in model.items()}


def same_bytes(one, other):
    """Whether two models have the same names and bytes."""
    return one.keys() == other.keys() and all(
        one[name].tobytes() == other[name].tobytes() for name in one)


def bound(store, tensors, **options):
    """A receiver with `tensors` bound."""
    receiver = segue.Receiver(store, **options)
    for name, tensor in tensors.items():
        receiver.bind(name, tensor)
    return receiver
