# SPDX-License-Identifier: Apache-2.0
"""The one way in which this reader says no.

A refusal names a status code, the object whose bytes are at fault, and a reason. `require` states a
rule of the format in one line, so that the reader reads like the document.
"""

CORRUPTION = "corruption"
INVALID_ARGUMENT = "invalid_argument"
NOT_FOUND = "not_found"
RESOURCE_EXHAUSTED = "resource_exhausted"
UNSUPPORTED = "unsupported"
VERSION_MISMATCH = "version_mismatch"


class Refusal(Exception):
    """Input that the format does not allow, or that does not fit the base."""

    def __init__(self, object_name: str, reason: str, code: str = CORRUPTION):
        super().__init__(f"{object_name}: {code}: {reason}")
        self.object_name = object_name
        self.reason = reason
        self.code = code


def require(condition: bool, object_name: str, reason: str, code: str = CORRUPTION) -> None:
    """Refuses unless `condition` holds."""
    if not condition:
        raise Refusal(object_name, reason, code)


def limit(value: int, maximum: int, object_name: str, what: str) -> None:
    """Refuses a value above a limit of section 9."""
    if value > maximum:
        raise Refusal(object_name, f"{what} is {value}, the limit is {maximum}", RESOURCE_EXHAUSTED)
