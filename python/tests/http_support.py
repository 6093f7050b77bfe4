# SPDX-License-Identifier: Apache-2.0
"""A server in place of an engine's own: what it is asked goes to a function of the test."""

import contextlib
import http.server
import json
import threading


@contextlib.contextmanager
def serving(answer):
    """A server whose POSTs `answer(path, body)` answers with (code, body); its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"] or 0)
            code, body = answer(self.path, json.loads(self.rfile.read(length) or b"{}"))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()
