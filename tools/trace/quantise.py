# SPDX-License-Identifier: Apache-2.0
"""Quantisers of the trace: FP32 to BF16, to block FP8 and to NVFP4, on numpy alone.

Why here and not through torch: Segue compares weights bit for bit, so every rounding that makes a
stored bit must be visible and testable without a framework. All rounding is to nearest even on
integer views of FP32; no stored code ever passes through a second float conversion.

What must hold:
- a code depends only on the FP32 bits of its block (FP8, NVFP4) and, for NVFP4, on the largest
  magnitude of its tensor;
- the sign bit is kept, so -0.0 stays -0.0; NaN stays NaN in BF16 (with its upper payload bits) and
  in E4M3; E2M1 has no NaN, and block scales of non-finite weights mean nothing: both are refused.
"""

import numpy as np

FP8_BLOCK = 128
NVFP4_BLOCK = 16
E4M3_MAX = 448.0
E2M1_MAX = 6.0
E2M1_VALUES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=np.float32)


def bf16_from_float(values):
    """BF16 codes (uint16) of FP32 values, to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    # Rounding could carry a NaN into infinity or past the sign: keep its payload, make it quiet.
    quiet_nan = (bits >> 16) | np.uint32(0x0040)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, quiet_nan, rounded).astype(np.uint16)


def float_from_bf16(codes):
    """FP32 values of BF16 codes; exact."""
    return (codes.astype(np.uint32) << 16).view(np.float32)


def _magnitude_codes(values, exponent_bias, mantissa_bits, code_max):
    """Codes without sign of a small float format, to nearest even, saturating at code_max."""
    magnitude = np.abs(values)
    bits = magnitude.view(np.uint32)
    dropped = 23 - mantissa_bits
    half_less_one = np.uint32((1 << (dropped - 1)) - 1)
    rounded = (bits + half_less_one + ((bits >> dropped) & 1)) >> dropped
    normal = rounded.astype(np.int64) - ((127 - exponent_bias) << mantissa_bits)
    smallest_normal = np.float32(2.0 ** (1 - exponent_bias))
    # Below the smallest normal the format is a fixed-point number; rint rounds half to even.
    steps_per_one = np.float32(2.0 ** (exponent_bias - 1 + mantissa_bits))
    is_subnormal = magnitude < smallest_normal
    subnormal = np.rint(np.where(is_subnormal, magnitude, 0) * steps_per_one).astype(np.int64)
    return np.minimum(np.where(is_subnormal, subnormal, normal), code_max).astype(np.uint8)


def e4m3_from_float(values):
    """E4M3 (the finite "fn" variant) codes of FP32 values; beyond +-448 they saturate."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    codes = _magnitude_codes(values, exponent_bias=7, mantissa_bits=3, code_max=0x7E)
    codes = np.where(np.isnan(values), np.uint8(0x7F), codes)
    return codes | (np.signbit(values).astype(np.uint8) << 7)


def _e4m3_table():
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    normal = (8 + mantissa) * 2.0 ** (exponent - 10.0)
    magnitude = np.where(exponent == 0, mantissa * 2.0**-9, normal)
    magnitude = np.where((codes & 0x7F) == 0x7F, np.nan, magnitude)
    return np.where(codes & 0x80, -magnitude, magnitude).astype(np.float32)


E4M3_VALUES = _e4m3_table()


def e2m1_from_float(values):
    """E2M1 codes (0 to 15, bit 3 is the sign) of FP32 values; beyond +-6 they saturate."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    if np.isnan(values).any():
        raise ValueError("E2M1 has no code for NaN")
    codes = _magnitude_codes(values, exponent_bias=1, mantissa_bits=1, code_max=7)
    return codes | (np.signbit(values).astype(np.uint8) << 3)


def float_from_e2m1(codes):
    """FP32 values of E2M1 codes (0 to 15)."""
    magnitude = E2M1_VALUES[codes & 7]
    return np.where(codes & 8, -magnitude, magnitude)


def pack_nibbles(codes):
    """Two codes a byte along the last axis: the even column in the low half."""
    if codes.shape[-1] % 2:
        raise ValueError(f"packed 4-bit rows need an even length, got {codes.shape[-1]}")
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_nibbles(packed):
    """Inverse of pack_nibbles."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def _check_matrix(values):
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"block quantisation needs a non-empty matrix, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("block quantisation needs finite weights")


def _block_max(values, block_rows, block_cols):
    """Largest magnitude of each block; blocks at the right and lower edge may be partial."""
    rows, cols = values.shape
    padding = ((0, -rows % block_rows), (0, -cols % block_cols))
    padded = np.pad(np.abs(values), padding)
    blocks = padded.reshape(
        padded.shape[0] // block_rows, block_rows, padded.shape[1] // block_cols, block_cols
    )
    return blocks.max(axis=(1, 3))


def spread_blocks(scales, block_rows, block_cols, shape):
    """Each block's scale at every element of a matrix of the given shape."""
    spread = np.repeat(np.repeat(scales, block_rows, axis=0), block_cols, axis=1)
    return spread[: shape[0], : shape[1]]


def fp8_quantise(values):
    """(E4M3 codes, FP32 scales), one scale per 128 x 128 block: weight = code value * scale.

    Scale = block maximum / 448. A block of zeros takes scale 1, so that nothing divides by zero.
    """
    values = np.ascontiguousarray(values, dtype=np.float32)
    _check_matrix(values)
    scales = _block_max(values, FP8_BLOCK, FP8_BLOCK) / np.float32(E4M3_MAX)
    scales = np.where(scales == 0, np.float32(1), scales)
    divisors = spread_blocks(scales, FP8_BLOCK, FP8_BLOCK, values.shape)
    return e4m3_from_float(values / divisors), scales


def fp8_dequantise(codes, scales):
    return E4M3_VALUES[codes] * spread_blocks(scales, FP8_BLOCK, FP8_BLOCK, codes.shape)


def nvfp4_quantise(values):
    """(packed E2M1, E4M3 block scales, FP32 tensor scale), blocks of 16 along a row.

    Tensor scale = tensor maximum / (6 * 448), so the largest block scale is 448; a block's scale is
    its maximum / 6 in units of the tensor scale, rounded to E4M3 but never to zero.
    """
    values = np.ascontiguousarray(values, dtype=np.float32)
    _check_matrix(values)
    tensor_scale = np.float32(np.abs(values).max() / np.float32(E2M1_MAX * E4M3_MAX))
    tensor_scale = tensor_scale if tensor_scale > 0 else np.float32(1)
    block_scales = _block_max(values, 1, NVFP4_BLOCK) / (np.float32(E2M1_MAX) * tensor_scale)
    block_codes = np.maximum(e4m3_from_float(block_scales), np.uint8(1))
    divisors = E4M3_VALUES[block_codes] * tensor_scale
    codes = e2m1_from_float(values / spread_blocks(divisors, 1, NVFP4_BLOCK, values.shape))
    return pack_nibbles(codes), block_codes, np.array(tensor_scale, dtype=np.float32)


def nvfp4_dequantise(packed, block_codes, tensor_scale):
    codes = unpack_nibbles(packed)
    scales = E4M3_VALUES[block_codes] * np.float32(tensor_scale)
    return float_from_e2m1(codes) * spread_blocks(scales, 1, NVFP4_BLOCK, codes.shape)
