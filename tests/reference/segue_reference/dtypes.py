# SPDX-License-Identifier: Apache-2.0
"""The dtypes of section 1: code, name, bits of one value, and the width of an element in bytes.

Bytes are opaque: nothing here, or anywhere else, turns them into numbers of the dtype.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Dtype:
    code: int
    name: str
    bits: int
    width: int


ALL = tuple(
    Dtype(code, name, bits, width)
    for code, (name, bits, width) in enumerate(
        [
            ("BOOL", 8, 1),
            ("F4", 4, 1),
            ("F6_E2M3", 6, 1),
            ("F6_E3M2", 6, 1),
            ("U8", 8, 1),
            ("I8", 8, 1),
            ("F8_E5M2", 8, 1),
            ("F8_E4M3", 8, 1),
            ("F8_E8M0", 8, 1),
            ("F8_E4M3FNUZ", 8, 1),
            ("F8_E5M2FNUZ", 8, 1),
            ("I16", 16, 2),
            ("U16", 16, 2),
            ("F16", 16, 2),
            ("BF16", 16, 2),
            ("I32", 32, 4),
            ("U32", 32, 4),
            ("F32", 32, 4),
            ("C64", 64, 4),
            ("F64", 64, 8),
            ("I64", 64, 8),
            ("U64", 64, 8),
        ],
        start=1,
    )
)

BY_CODE = {dtype.code: dtype for dtype in ALL}
BY_NAME = {dtype.name: dtype for dtype in ALL}
