# SPDX-License-Identifier: Apache-2.0
"""`segue publish --watch` under test, as a process whose lines are read as they come."""

import contextlib
import json
import signal
import threading

FAST = ("--interval", "0.05", "--settle", "0.2", "--json")


class Watching:
    """The process; its stdout is read as it comes."""

    def __init__(self, segue, *arguments):
        self.process = segue.start("publish", "--watch", *arguments)

    def version(self, timeout=60):
        """The next line, as JSON."""
        timer = threading.Timer(timeout, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        assert line, self.process.stderr.read()
        return json.loads(line)

    def stop(self):
        """(exit code, stderr) after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@contextlib.contextmanager
def watching(segue, *arguments):
    watch = Watching(segue, *arguments)
    try:
        yield watch
    finally:
        if watch.process.poll() is None:
            watch.process.kill()
            watch.process.communicate()
