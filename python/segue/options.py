# SPDX-License-Identifier: Apache-2.0
"""Options: what a caller gives beside tensors, looked at before anything is done with it.

A value of another type or sign is an InvalidArgumentError that names the option, what it takes and
what was there; the compiled part would say so in words of C++, or take a string for its characters.
"""

import math
import operator
import os
from collections.abc import Iterable
from typing import Any, NoReturn

from segue.errors import InvalidArgumentError

COUNT_MAX = 2**63 - 1
# What the compiled part's types hold; its own limits are lower.
OWNERS_MAX = THREADS_MAX = 2**31 - 1


def _refuse(name: str, wanted: str, value: object) -> NoReturn:
    raise InvalidArgumentError(f"{name} is {wanted}, not {value!r}")


def count(name: str, value: Any, least: int = 0, most: int = COUNT_MAX) -> int:
    """A whole number from `least` to `most`; True and False are none."""
    wanted = f"a whole number, at least {least}"
    if isinstance(value, bool):
        _refuse(name, wanted, value)
    try:
        number = operator.index(value)
    except TypeError:
        _refuse(name, wanted, value)
    if not least <= number <= most:
        _refuse(name, wanted if number < least else f"at most {most}", value)
    return number


def count_or_none(name: str, value: Any, least: int = 0, most: int = COUNT_MAX) -> int | None:
    """The same; None stays None."""
    return None if value is None else count(name, value, least, most)


def seconds(name: str, value: Any) -> float:
    """A number of seconds, 0 or more."""
    wanted = "a number of seconds, 0 or more"
    if isinstance(value, (bool, str, bytes)):
        _refuse(name, wanted, value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        _refuse(name, wanted, value)
    if math.isnan(number) or number < 0:
        _refuse(name, wanted, value)
    return number


def flag(name: str, value: Any) -> bool:
    """True or False; numbers and strings are neither."""
    if not isinstance(value, bool):
        _refuse(name, "True or False", value)
    return value


def text(name: str, value: Any) -> str:
    """A string that has a form in UTF-8."""
    if not isinstance(value, str):
        _refuse(name, "a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        _refuse(name, "a string that UTF-8 can write", value)
    return value


def path(name: str, value: Any) -> str:
    """A path or a URL, as a string."""
    try:
        return text(name, os.fspath(value))
    except TypeError:
        _refuse(name, "a path or URL", value)


def several(name: str, value: Any) -> list[Any]:
    """A list, or what else can be gone through; a string would be its characters."""
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        _refuse(name, "a list", value)
    return list(value)


def texts(name: str, value: Any) -> list[str]:
    """A list of strings."""
    return [text(f"each of {name}", one) for one in several(name, value)]


def paths(name: str, value: Any) -> list[str]:
    """A list of paths."""
    return [path(f"each of {name}", one) for one in several(name, value)]
