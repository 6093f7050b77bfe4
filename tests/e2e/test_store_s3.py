# SPDX-License-Identifier: Apache-2.0
"""Stores in S3: the suite that every transport passes and every verb, against moto's server."""

import os
import pathlib
import re
import subprocess
import urllib.error
import urllib.request

import pytest

from e2e_support import same_files, version_directory, write_safetensors
from store_support import watch_story, whole_story

NAME = f"e2e-s3-{os.getpid()}"
BUCKET = "segue-test"


@pytest.fixture(scope="module")
def endpoint():
    """The URL of an S3 server with a bucket; the program's environment leads to it."""
    server_module = pytest.importorskip("moto.server")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
    urllib.request.urlopen(request, timeout=30).close()
    ours = {"AWS_ACCESS_KEY_ID": "key-id", "AWS_SECRET_ACCESS_KEY": "hunter2",
            "AWS_SESSION_TOKEN": "session", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": url,
            "SEGUE_TEST_S3_BUCKET": BUCKET}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    yield url
    for name, value in before.items():
        if value is None:
            os.environ.pop(name)
        else:
            os.environ[name] = value
    server.stop()


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def keys(endpoint, prefix):
    return re.findall("<Key>(.*?)</Key>",
                      get(f"{endpoint}/{BUCKET}?list-type=2&prefix={prefix}"))


def test_conformance(segue, endpoint):
    program = pathlib.Path(segue.binary).with_name("store_test")
    if not program.is_file():
        pytest.skip(f"there is no {program}: build it")
    done = subprocess.run([program, "--gtest_filter=S3/StoreConformance*"], timeout=300,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "SKIPPED" not in done.stdout and "[  PASSED  ] 12 tests." in done.stdout


def test_every_verb(segue, endpoint, tmp_path):
    whole_story(segue, f"s3://{BUCKET}/run7", tmp_path, NAME)
    found = keys(endpoint, "run7/")
    assert "run7/default/lineage.json" in found and "run7/default/versions/0000000004.json" in found
    # Nothing but the objects that format.md names, and the one that tries the server.
    assert all(re.match(r"run7/(default/(lineage\.json|plans|layouts|payloads|versions|anchors)"
                        r"|\.segue-condition$)", key) for key in found), found


def test_watched(segue, endpoint, tmp_path):
    watch_story(segue, f"s3://{BUCKET}/watched", tmp_path)


def test_large_objects_in_parts(segue, endpoint, tmp_path):  # case G6
    size = 40 << 20
    base = write_safetensors(tmp_path / "base", {"w": ("U8", [size], bytes(size))})
    target = write_safetensors(tmp_path / "target", {"w": ("U8", [size], os.urandom(size))})
    store = f"s3://{BUCKET}/large"
    report = segue("publish", "--store", store, "--base", base, "--target", target)
    assert report["payload_bytes"] > size
    # Amazon's form of such an object's ETag: no MD5 of anything, and the count of its parts.
    tags = re.findall("<ETag>(.*?)</ETag>", get(f"{endpoint}/{BUCKET}?list-type=2&prefix=large/"))
    assert any(re.search("-3(&quot;|\")?$", tag) for tag in tags), tags
    segue("apply", "--store", store, "--checkpoint", base, "--output", tmp_path / "out")
    assert same_files(tmp_path / "out", target)
    assert "<UploadId>" not in get(f"{endpoint}/{BUCKET}?uploads")


def test_what_is_refused(segue, endpoint, tmp_path):
    arguments = ("apply", "--checkpoint", version_directory("bf16", 0), "--output",
                 tmp_path / "out", "--store")
    assert "NoSuchBucket" in segue.fails("not_found", *arguments, "s3://no-such-bucket/x")
    assert "lineage" in segue.fails("not_found", *arguments, f"s3://{BUCKET}/nothing-here")
    segue.fails("invalid_argument", *arguments, "s3://UPPER/x")
    os.environ["AWS_ENDPOINT_URL_S3"] = "http://127.0.0.1:1"
    try:
        message = segue.fails("unavailable", *arguments, f"s3://{BUCKET}/x")
        assert "hunter2" not in message and "session" not in message
    finally:
        os.environ.pop("AWS_ENDPOINT_URL_S3")
