# SPDX-License-Identifier: Apache-2.0
"""The steps of an update that a Receiver and a ReceiverGroup have alike, and how their calls reach
the module. Whoever derives has `open()`, which returns it with `_core` set, `close()`, and
`_raise_if_replaced(error)`, which raises a better error where a tensor's memory was replaced."""

from segue.errors import InvalidArgumentError


class UpdateSteps:
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
