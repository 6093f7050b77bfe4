# SPDX-License-Identifier: Apache-2.0
"""Receivers that read through each other: `segue serve --relay` in a chain, one killed."""

import os
import re
import urllib.request

from e2e_support import version_directory
from live_support import Serving, serving
from live_segment import read_checkpoint
from store_support import serving_store, token_set, wait_for_version

NAME = f"e2e-relay-{os.getpid()}"


def publish(segue, url, version):
    return segue("publish", "--store", url, "--base", version_directory("bf16", version - 1),
                 "--target", version_directory("bf16", version))["payload_bytes"]


def payload_bytes_sent(url):
    text = urllib.request.urlopen(url + "/.metrics", timeout=10).read().decode()
    return int(re.search(r"^segue_store_sent_payload_bytes_total (\d+)$", text, re.M).group(1))


def read_from(receiver, source):
    text = urllib.request.urlopen(receiver.url + "/metrics", timeout=10).read().decode()
    return int(re.search(rf'^segue_relay_read_bytes_total.*source="{source}"}} (\d+)$', text,
                         re.M).group(1))


def test_a_chain_of_relays(segue, tmp_path):
    checkpoint = version_directory("bf16", 0)
    with serving_store(segue, tmp_path / "store") as url, token_set():
        total = publish(segue, url, 1)
        common = ("--store", url, "--checkpoint", checkpoint, "--follow", 20)
        with serving(segue, NAME + "-a", *common, "--relay") as first, \
                serving(segue, NAME + "-b", *common, "--relay-from", first.ready["relay"],
                        "--relay-listen", "127.0.0.1:0") as second, \
                serving(segue, NAME + "-c", *common, "--relay-from", "http://127.0.0.1:1",
                        "--relay-from", second.ready["relay"],
                        "--relay-dir", tmp_path / "kept") as third:
            assert third.ready["relay"] == ""
            fleet = (first, second, third)
            for version in (2, 3):
                total += publish(segue, url, version)
                for receiver in fleet:
                    wait_for_version(receiver, version)
                    live = receiver.segment.tensors()
                    assert live == read_checkpoint(version_directory("bf16", version))
            assert payload_bytes_sent(url) == total
            assert payload_bytes_sent(first.ready["relay"]) == total
            read = read_from(first, "origin")
            assert read > total and read_from(first, "relay") == 0  # Payloads, plan and layout.
            assert (read_from(third, "origin"), read_from(third, "relay")) == (0, read)
            first.kill()
            publish(segue, url, 4)
            for receiver in fleet[1:]:
                wait_for_version(receiver, 4)
                live = receiver.segment.tensors()
                assert live == read_checkpoint(version_directory("bf16", 4))
            assert third.stop() == 0
        assert not list((tmp_path / "kept").iterdir())


def test_killed_relays_leave_nothing(segue, tmp_path, trace_stores):
    kept = tmp_path / "kept"
    for ends in (Serving.kill, Serving.stop):
        with serving(segue, NAME, "--store", trace_stores["bf16"], "--checkpoint",
                     version_directory("bf16", 0), "--relay", "--relay-dir", kept) as receiver:
            folder, = kept.iterdir()
            assert list(folder.glob("*/payloads/*/*"))
            ends(receiver)
        assert folder.exists() == (ends is Serving.kill)
    assert not list(kept.iterdir())
    message = segue.fails("not_found", "serve", "--name", NAME, "--store", trace_stores["bf16"],
                          "--checkpoint", version_directory("bf16", 0), "--relay", "--relay-dir",
                          tmp_path / "no/where")
    assert "no/where" in message and not (tmp_path / "no").exists()


def test_addresses_are_checked(segue, tmp_path, trace_stores):
    common = ("serve", "--name", NAME, "--store", trace_stores["bf16"],
              "--checkpoint", version_directory("bf16", 0))
    before = os.environ.pop("SEGUE_STORE_TOKEN", None)
    assert before is None
    assert "token" in segue.fails("invalid_argument", *common, "--relay-listen", "0.0.0.0:0")
    segue.fails("invalid_argument", *common, "--relay-from", "relay:7000")
