# SPDX-License-Identifier: Apache-2.0
"""What objects say of themselves in repr(): whose they are, and where they stand."""

from collections.abc import Callable
from typing import Any


def standing(of: object, called: str, look: Callable[[Any], str]) -> str:
    """`look` asks its `_core`. Opens nothing and never raises, also where `of` is half made."""
    core = getattr(of, "_core", None)
    if getattr(of, "_closed", False):
        told = "closed"
    elif core is None:
        told = "not open"
    else:
        try:
            told = look(core)
        except Exception as error:  # Closed meanwhile, or another process's.
            told = f"cannot be asked ({type(error).__name__})"
    return f"<segue.{type(of).__name__} of {called}, {told}>"
