# SPDX-License-Identifier: Apache-2.0
"""A store in a directory whose file system hangs (a mount whose server is gone): what does not need
the store answers, and SIGTERM ends `segue serve`. A preloaded library stands in for the mount: it
lets nobody come back who opens a file or folder of the store."""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest

from e2e_support import version_directory
from live_support import Serving

NAME = f"e2e-hung-{os.getpid()}"
STOP_S_MAX = 3.0
EXIT_UNAVAILABLE = 8

HANGING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void Hang(int folder, const char *path) {
  char link[64], place[4096];
  const char *at = getenv("HANG_AT"), *flag = getenv("HANG_FLAG");
  snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
  const ssize_t size = folder >= 0 ? readlink(link, place, sizeof(place) - 1) : 0;
  place[size > 0 ? size : 0] = 0;
  if (strstr(path, at) == NULL && strstr(place, at) == NULL) return;
  if (access(flag, F_OK) != 0) return;
  char asked[4096];
  snprintf(asked, sizeof(asked), "%s.asked", flag);
  close(creat(asked, 0600));
  for (;;) pause();
}
#define OPENAT(name)                                                                      \
  int name(int folder, const char *path, int flags, ...) {                                \
    va_list more; va_start(more, flags);                                                  \
    const int mode = va_arg(more, int); va_end(more);                                     \
    Hang(folder, path);                                                                   \
    return ((int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name))(folder, path,  \
                                                                           flags, mode); \
  }
OPENAT(openat)
OPENAT(openat64)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no compiler for the library that hangs")
    folder = tmp_path_factory.mktemp("hanging")
    (folder / "hanging.c").write_text(HANGING)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "hanging.so",
                    folder / "hanging.c", "-ldl"], check=True)
    return folder / "hanging.so"


@pytest.fixture
def hung(segue, tmp_path, library):
    """A store at version 1, and a `segue serve` over it that is not started."""
    segue("publish", "--store", tmp_path / "store", "--base", version_directory("bf16", 0),
          "--target", version_directory("bf16", 1))
    environment = {"LD_PRELOAD": str(library), "HANG_AT": str(tmp_path / "store"),
                   "HANG_FLAG": str(tmp_path / "hangs")}
    serving = Serving(segue.binary, NAME, "--store", tmp_path / "store", "--checkpoint",
                      version_directory("bf16", 0), environment=environment)
    serving.flag = tmp_path / "hangs"
    serving.asked = tmp_path / "hangs.asked"
    serving.segment.remove()
    yield serving
    if serving.process is not None:
        serving.process.kill()
        serving.process.wait()
    serving.segment.remove()


def await_asked(serving):
    until = time.monotonic() + 30
    while not serving.asked.exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def expect_ends(serving):
    begun = time.monotonic()
    serving.process.send_signal(signal.SIGTERM)
    told = serving.process.communicate(timeout=60)[1]
    assert time.monotonic() - begun < STOP_S_MAX
    assert serving.process.returncode == EXIT_UNAVAILABLE
    assert "file system does not answer" in told


@pytest.mark.parametrize("way", ("update", "follow", "versions"))
def test_status_answers_and_a_stop_ends_it(hung, way):
    if way == "follow":
        hung.command += ["--follow", "50"]
    hung.start()
    hung.flag.touch()
    ask = {"update": lambda: hung.post("/update_weights_from_gpu_delta", target_version=1),
           "versions": lambda: hung.request("/versions"), "follow": lambda: None}[way]

    def swallow():
        with contextlib.suppress(OSError):
            ask()
    threading.Thread(target=swallow, daemon=True).start()
    await_asked(hung)
    for path in ("/healthz", "/metrics"):
        begun = time.monotonic()
        assert hung.request(path)[0] == 200
        assert time.monotonic() - begun < 1
    time.sleep(2)  # The call of the file system is known to hang by then.
    expect_ends(hung)


def test_a_stop_ends_a_start(hung):
    hung.flag.touch()
    hung.process = subprocess.Popen(hung.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    text=True, env=hung.environment)
    await_asked(hung)
    expect_ends(hung)
