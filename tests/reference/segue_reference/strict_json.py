# SPDX-License-Identifier: Apache-2.0
"""JSON as the formats want it: UTF-8, one object, no duplicate keys, no NaN; and typed fields.

Python's own reader keeps the last of duplicate keys and knows NaN; two readers that disagree about
such text would disagree about what a version is.
"""

import json
from typing import Any

from .errors import Refusal, require


def parse_object(data: bytes, object_name: str) -> dict[str, Any]:
    """Parses UTF-8 text that is one JSON object."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        require(len(result) == len(items), object_name, "duplicate key in JSON")
        return result

    def constant(name: str) -> None:
        raise Refusal(object_name, f"{name} is not JSON")

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise Refusal(object_name, f"not JSON: {error}") from None
    require(isinstance(value, dict), object_name, "not a JSON object")
    return value


def integer(fields: dict[str, Any], key: str, object_name: str) -> int:
    """A field that is written as a non-negative integer (`1.0` and `true` are not)."""
    value = fields.get(key)
    require(type(value) is int and value >= 0, object_name, f"{key} is not an integer")
    return value


def string(fields: dict[str, Any], key: str, object_name: str) -> str:
    value = fields.get(key)
    require(isinstance(value, str), object_name, f"{key} is not a string")
    return value
