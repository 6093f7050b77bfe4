# SPDX-License-Identifier: Apache-2.0
"""Stores over HTTP: every verb on one, through connections that drop, and over TLS."""

import contextlib
import os
import pathlib
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

from e2e_support import copy_of, same_files, version_directory
from store_support import TOKEN, serving_store, token_set, watch_story, whole_story

NAME = f"e2e-http-{os.getpid()}"


def test_every_verb(segue, tmp_path):
    with serving_store(segue, tmp_path / "store") as url, token_set():
        whole_story(segue, url, tmp_path, NAME)
        listed = segue("inspect", url)
        assert listed["kind"] == "store" and listed["lineages"]
        name = listed["lineages"][0]["lineage"]
        for folder in (f"{url}/{name}", f"{url}/{name}/"):
            assert segue("inspect", folder) == {"kind": "lineage", **listed["lineages"][0]}
        metrics = urllib.request.urlopen(url + "/.metrics", timeout=10).read().decode()
        assert "segue_store_sent_payload_bytes_total" in metrics
    # What was published over HTTP is a store like any other, and nothing else is left.
    assert segue("inspect", tmp_path / "store/default/lineage.json")
    assert not list((tmp_path / "store/.tmp").glob("*"))


def test_watched(segue, tmp_path):
    with serving_store(segue, tmp_path / "store") as url, token_set():
        watch_story(segue, url, tmp_path)


def test_a_folder_of_a_server(segue, tmp_path):
    with serving_store(segue, tmp_path / "store") as url, token_set():
        segue("publish", "--store", url + "/runs/seven", "--base", version_directory("bf16", 0),
              "--target", version_directory("bf16", 1))
    assert (tmp_path / "store/runs/seven/default/lineage.json").is_file()


def test_readers_cannot_write(segue, tmp_path, trace_stores):
    arguments = ("publish", "--base", version_directory("bf16", 0),
                 "--target", version_directory("bf16", 1), "--store")
    with serving_store(segue, tmp_path / "store") as url:
        message = segue.fails("invalid_argument", *arguments, url)
        assert "401" in message and "SEGUE_STORE_TOKEN" in message
        with token_set("another"):
            message = segue.fails("invalid_argument", *arguments, url)
            assert "401" in message and "another" not in message
    assert not list((tmp_path / "store").glob("default*"))
    assert f"list of names of store '{url}" in segue.fails("unavailable", *arguments, url)
    with serving_store(segue, trace_stores["bf16"], token=None) as url, token_set():
        assert "read-only" in segue.fails("invalid_argument", *arguments, url + "/new")
        copy = copy_of(version_directory("bf16", 0), tmp_path / "copy")
        segue("apply", "--store", url, "--checkpoint", copy)
        assert same_files(copy, version_directory("bf16", 8))


def test_token_file_and_addresses(segue, tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    store = tmp_path / "store"
    with serving_store(segue, store, "--token-file", tmp_path / "token", token=None) as url:
        with token_set():
            segue("publish", "--store", url, "--base", version_directory("bf16", 0),
                  "--target", version_directory("bf16", 1))
    assert "--public-read" in segue.fails("invalid_argument", "store", "--dir", store,
                                          "--listen", "0.0.0.0:0")
    (tmp_path / "empty").write_text("\n")
    segue.fails("invalid_argument", "store", "--dir", store, "--token-file", tmp_path / "empty")
    segue.fails("not_found", "store", "--dir", tmp_path / "none")
    segue.fails("unavailable", "apply", "--store", "http://127.0.0.1:1", "--checkpoint",
                version_directory("bf16", 0), "--output", tmp_path / "out")
    message = segue.fails("invalid_argument", "apply", "--store", "http://u:hunter2@127.0.0.1:1/",
                          "--checkpoint", version_directory("bf16", 0),
                          "--output", tmp_path / "out")
    assert "hunter2" not in message


class CuttingProxy:
    """Passes bytes on to `port`, and cuts every connection after `size_max` bytes of answers."""

    def __init__(self, port, size_max):
        self.port, self.size_max, self.cuts = port, size_max, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            threading.Thread(target=self.upstream, args=(client, server), daemon=True).start()
            threading.Thread(target=self.downstream, args=(server, client), daemon=True).start()

    @staticmethod
    def upstream(client, server):
        try:
            while piece := client.recv(65536):
                server.sendall(piece)
        except OSError:
            pass

    def downstream(self, server, client):
        left = self.size_max
        try:
            while left > 0 and (piece := server.recv(min(left, 4096))):
                client.sendall(piece)
                left -= len(piece)
            self.cuts += left == 0
        except OSError:
            pass
        close_both(server, client)


def close_both(*ends):
    """Also for whoever waits in a call on one of them."""
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def test_through_a_proxy_that_cuts(segue, tmp_path, trace_stores):  # case G4
    with serving_store(segue, trace_stores["bf16"], token=None) as url:
        proxy = CuttingProxy(int(url.rsplit(":", 1)[1]), 7000)
        copy = copy_of(version_directory("bf16", 0), tmp_path / "copy")
        segue("apply", "--store", proxy.url, "--checkpoint", copy)
        proxy.listener.close()
        assert proxy.cuts >= 8
        assert same_files(copy, version_directory("bf16", 8))


def test_slow_writers_hold_up_nobody(segue, tmp_path):  # case G8
    with serving_store(segue, tmp_path / "store") as url, token_set():
        address = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
        slow = [socket.create_connection(address) for _ in range(20)]
        for number, client in enumerate(slow):
            client.sendall(b"PUT /slow%d HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
                           b"Authorization: Bearer %s\r\nIf-None-Match: *\r\n"
                           b"Segue-SHA256: %s\r\n\r\nabc"
                           % (number, TOKEN.encode(), b"0" * 64))
        begin = time.monotonic()
        segue("publish", "--store", url, "--base", version_directory("bf16", 0),
              "--target", version_directory("bf16", 1))
        assert time.monotonic() - begin < 8
        for client in slow:
            client.close()
    assert not list((tmp_path / "store").glob("slow*"))


def test_tls_is_verified(segue, tmp_path, trace_stores):
    certificate = tmp_path / "certificate.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                    "-keyout", tmp_path / "key.pem", "-out", certificate],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with serving_store(segue, trace_stores["bf16"], token=None) as url:
        url = tls_in_front_of(int(url.rsplit(":", 1)[1]), certificate, tmp_path / "key.pem")
        arguments = ("apply", "--checkpoint", version_directory("bf16", 0), "--store", url,
                     "--output", tmp_path / "out")
        assert "certificate" in segue.fails("invalid_argument", *arguments)
        os.environ["SSL_CERT_FILE"] = str(certificate)
        try:
            segue(*arguments)
            assert same_files(tmp_path / "out", version_directory("bf16", 8))
            other = url.replace("localhost", "127.0.0.1")
            segue.fails("invalid_argument", "apply", "--checkpoint", version_directory("bf16", 0),
                        "--store", other, "--output", tmp_path / "other")
        finally:
            os.environ.pop("SSL_CERT_FILE")


def tls_in_front_of(port, certificate, key):
    """The URL of a TLS end that passes bytes on to `port`; ends with this process."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pathlib.Path(certificate), pathlib.Path(key))
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source, target):
        try:
            while piece := source.recv(65536):
                target.sendall(piece)
        except OSError:
            pass
        close_both(source, target)

    def run():
        while True:
            plain, _ = listener.accept()
            try:
                client = context.wrap_socket(plain, server_side=True)
            except (OSError, ssl.SSLError):
                continue
            server = socket.create_connection(("127.0.0.1", port))
            for ends in ((client, server), (server, client)):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    return "https://localhost:%d" % listener.getsockname()[1]
