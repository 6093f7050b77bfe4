# SPDX-License-Identifier: Apache-2.0
"""A serving receiver under test: started, asked over HTTP, killed, and gone with its segment."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import pathlib
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

from live_segment import Segment  # noqa: E402


class Serving:
    """`segue serve` as a process. Arguments as on its command line, without --name."""

    def __init__(self, binary, name, *arguments, environment=None):
        self.segment = Segment(name)
        self.command = [binary, "serve", "--name", name, "--json", *map(str, arguments)]
        self.environment = {**os.environ, **(environment or {})}
        self.token = self.environment.get("SEGUE_TOKEN")
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=self.environment)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise AssertionError(f"serve ended with {self.process.returncode}: "
                                 f"{self.process.stderr.read()}")
        self.ready = json.loads(line)
        self.url = self.ready["url"]
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self._reap()

    def stop(self):
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def _reap(self):
        self.process.wait(timeout=60)
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.returncode

    def request(self, path, body=None, method=None, headers=None, timeout=60):
        """(status, parsed answer); text where it is no JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = dict(headers or {})
        if self.token and "Authorization" not in headers:
            headers["Authorization"] = "Bearer " + self.token
        request = urllib.request.Request(self.url + path, data=data, headers=headers,
                                         method=method or ("GET" if body is None else "POST"))
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                status, text = error.code, error.read().decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def post(self, path, **fields):
        return self.request(path, fields)

    def version(self):
        return self.request("/healthz")[1]["version"]


@contextlib.contextmanager
def serving(segue, name, *arguments, environment=None):
    """Ends with nothing left: neither process nor segment."""
    receiver = Serving(segue.binary, name, *arguments, environment=environment)
    receiver.segment.remove()
    try:
        yield receiver.start()
    finally:
        if receiver.process.poll() is None:
            receiver.kill()
        receiver.segment.remove()


def check_schema(value, schema, document, where):
    """Whether an answer is what the OpenAPI document says of it."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool,
             "object": dict, "array": list}
    assert isinstance(value, kinds[schema["type"]]), (where, value)
    if "properties" in schema:
        assert set(schema["required"]) <= set(value) <= set(schema["properties"]), where
        for name in value:
            check_schema(value[name], schema["properties"][name], document, f"{where}.{name}")
    for item in value if schema["type"] == "array" else ():
        check_schema(item, schema["items"], document, where)
