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

from segue import _core
from segue.errors import InvalidArgumentError

_open = weakref.WeakSet()


def keep_until_the_end(receiver):
    """Closes it when the interpreter ends, if it lives that long."""
    _open.add(receiver)


@atexit.register
def _close_all():
    """Threads of receivers must not outlive the interpreter: their callbacks are Python. One that
    cannot be closed as it should does not keep the others from it."""
    failure = None
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

    def __init__(self):
        self.process, self.thread = os.getpid(), threading.get_ident()
        self.ended = threading.Event()


class UpdateSteps:
    _NOUN = "receiver"

    def __init__(self):
        self._core, self._closed = None, False
        self._turns = {}  # Whose turn it is. Taken by one call into C, which no signal divides.

    @contextlib.contextmanager
    def _turn(self):
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

    def _check_open(self):
        if self._closed:
            raise InvalidArgumentError(f"the {self._NOUN} is closed")

    def _open_once(self, make_core):
        """Sets `_core`, unless another thread has done it."""
        with self._turn():
            self._check_open()
            if self._core is None:
                self._core = make_core()
                keep_until_the_end(self)

    def _close_core(self):
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

    def wait_prepared(self):
        """Waits until nothing is being prepared; raises what the prepare failed with."""
        self._call("wait_prepared")

    def apply(self, session="", *, flush_cache=True, abort_requests=False):
        """Applies what is prepared, behind closed gates, and proves it."""
        self._call("apply", session, flush_cache, abort_requests)

    def resume(self, session="", *, keep_pause=False):
        """Opens the gates after an apply and lets the engine go on."""
        self._call("resume", session, keep_pause)

    def abort(self, session=""):
        """Gives up a prepare or what it made."""
        self._call("abort", session)

    def clear(self):
        """Forgets an update that failed, was aborted or has resumed."""
        self._call("clear")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} cannot be pickled: open one in each process")

    def _call(self, method, *arguments):
        return self._naming_replaced(getattr(self.open()._core, method), *arguments)

    def _naming_replaced(self, call, *arguments):
        try:
            return call(*arguments)
        except InvalidArgumentError as error:
            self._raise_if_replaced(error)
            raise
