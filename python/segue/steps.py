# SPDX-License-Identifier: Apache-2.0
"""The steps of an update that a Receiver and a ReceiverGroup have alike, who may open and close
them when, and how their calls reach the module. Whoever derives has `open()`, which returns it with
`_core` set, `close()`, and `_raise_if_replaced(error)`, which raises a better error where a
tensor's memory was replaced.

What must hold: the same tensors never have two cores, as each has a gate of its own. So one thread
at a time opens, binds or closes; others wait for it.
"""

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from segue import _core
from segue import options as checked
from segue.errors import InvalidArgumentError
from segue.standing import standing

_open: "weakref.WeakSet[UpdateSteps]" = weakref.WeakSet()
Self = TypeVar("Self", bound="UpdateSteps")


def keep_until_the_end(receiver: "UpdateSteps") -> None:
    """Closes it when the interpreter ends, if it lives that long."""
    _open.add(receiver)


@atexit.register
def _close_all() -> None:
    """Threads of receivers must not outlive the interpreter: their callbacks are Python. One that
    cannot be closed as it should does not keep the others from it."""
    failure: BaseException | None = None
    for receiver in list(_open):
        try:
            receiver.close()
        except BaseException as error:
            failure = failure or error
    _core.end_interpreter()
    if failure is not None:
        raise failure


class _Turn:
    """A thread's turn at what only one may do."""

    def __init__(self) -> None:
        self.process, self.thread = os.getpid(), threading.get_ident()
        self.ended = threading.Event()


class UpdateSteps:
    """What a receiver and a group of them do alike."""

    _NOUN = "receiver"

    def __init__(self) -> None:
        self._core: Any = None
        self._closed = False
        # Whose turn it is. Taken by one call into C, which no signal divides.
        self._turns: dict[str, _Turn] = {}

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Waits for this thread's turn. InvalidArgumentError where it has it already: in a callback
        of open(), or in a signal's handler."""
        mine = _Turn()
        try:
            while (other := self._turns.setdefault("turn", mine)) is not mine:
                if other.process != mine.process:  # Before a fork; its thread is not here.
                    self._turns.pop("turn", None)
                    continue
                if other.thread == mine.thread:
                    raise InvalidArgumentError(
                        "called from inside its own open(), bind() or close()")
                other.ended.wait()
            yield
        finally:
            if self._turns.get("turn") is mine:
                del self._turns["turn"]
            mine.ended.set()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgumentError(f"the {self._NOUN} is closed")

    def _open_once(self, make_core: Callable[[], Any]) -> None:
        """Sets `_core`, unless another thread has done it."""
        with self._turn():
            self._check_open()
            if self._core is None:
                self._core = make_core()
                keep_until_the_end(self)

    def _close_core(self) -> None:
        """Refused from inside one of its own calls: it is open as before. What the engine could not
        be told is raised, and it is closed."""
        if self._core is None:
            with self._turn():  # Whoever opens it now ends first.
                if self._core is None:
                    self._closed = True
                    return
        try:
            self._core.close()
        finally:
            self._closed = self._core.closed
            if self._closed:
                _open.discard(self)

    def open(self: Self) -> Self:
        """Opens it, if it is not open yet."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends it."""
        raise NotImplementedError

    def wait_prepared(self) -> None:
        """Waits until nothing is being prepared; raises what the prepare failed with."""
        self._call("wait_prepared")

    def apply(self, session: str = "", *, flush_cache: bool = True,
              abort_requests: bool = False) -> None:
        """Applies what is prepared, behind closed gates, and proves it."""
        self._call("apply", checked.text("session", session), flush_cache, abort_requests)

    def resume(self, session: str = "", *, keep_pause: bool = False) -> None:
        """Opens the gates after an apply and lets the engine go on."""
        self._call("resume", checked.text("session", session), keep_pause)

    def abort(self, session: str = "") -> None:
        """Gives up a prepare or what it made."""
        self._call("abort", checked.text("session", session))

    def clear(self) -> None:
        """Forgets an update that failed, was aborted or has resumed."""
        self._call("clear")

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        """What it is and where it stands; opens nothing and never raises."""
        return standing(self, self._called(), lambda core: self._standing(core.status()))

    def _called(self) -> str:
        """What is moved, for repr(), also of one that could not be made."""
        raise NotImplementedError

    def _standing(self, status: Any) -> str:
        """At which version it is, and what it does."""
        raise NotImplementedError

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: open one in each process")

    def _raise_if_replaced(self, error: Exception) -> None:
        raise NotImplementedError

    def _call(self, method: str, *arguments: Any) -> Any:
        return self._naming_replaced(getattr(self.open()._core, method), *arguments)

    def _naming_replaced(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except InvalidArgumentError as error:
            self._raise_if_replaced(error)
            raise
