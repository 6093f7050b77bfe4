# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each status code of docs/protocol.md, section 1. A code says what the
caller should do; the message names the thing, what was expected and what was found.

Whatever is raised, weights, files and the reported version are as before; TaintedError is the one
exception, and says so.
"""


class Error(RuntimeError):
    """Any failure of Segue. `code` is the status code's name."""

    code = "internal"


class InvalidArgumentError(Error, ValueError):
    """The request makes no sense: correct the call."""

    code = "invalid_argument"


class NotFoundError(Error, LookupError):
    """No such version, tensor, file or segment: look again."""

    code = "not_found"


class VersionMismatchError(Error):
    """The delta's base is not what is there: ask for a delta from the version that is held."""

    code = "version_mismatch"


class CorruptionError(Error):
    """Bytes disagree with their digest or format: fetch again, report."""

    code = "corruption"


class UnsupportedError(Error):
    """Unknown format version, codec, dtype or feature: choose another."""

    code = "unsupported"


class ResourceExhaustedError(Error):
    """A named limit, disk, or memory: free or lower, then retry."""

    code = "resource_exhausted"


class UnavailableError(Error):
    """Transient (busy, network, input or output): retry with backoff."""

    code = "unavailable"


class TaintedError(Error):
    """Weights may be half changed: rebuild them; never retry."""

    code = "tainted"


class InternalError(Error):
    """What a callback of yours raised, where `__cause__` is that; else a bug: report it."""

    code = "internal"


CLASSES = {
    error.code: error
    for error in (InvalidArgumentError, NotFoundError, VersionMismatchError, CorruptionError,
                  UnsupportedError, ResourceExhaustedError, UnavailableError, TaintedError,
                  InternalError)
}


def told(error: BaseException) -> str:
    """What a foreign exception says, if it can say it."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
