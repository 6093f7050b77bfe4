# SPDX-License-Identifier: Apache-2.0
"""Two lineages of one engine under test: their versions in one store, and a receiver of both."""

import contextlib

from live_support import serving

from live_segment import Segment, read_checkpoint


class Lineages:
    """`policy` and `draft` in a store; versions are directories that `segue generate` made."""

    def __init__(self, segue, folder, sizes, preset="bf16-10", steps=3):
        self.segue = segue
        self.folder = folder
        self.store = folder / "store"
        for seed, (name, size) in enumerate(sizes.items(), start=1):
            segue("generate", "--output", folder / name, "--preset", preset, "--size", size,
                  "--steps", steps, "--seed", seed)

    def directory(self, name, version):
        return self.folder / name / f"v{version:010}"

    def publish(self, name, version):
        self.segue("publish", "--store", self.store, "--lineage", name, "--base",
                   self.directory(name, version - 1), "--target", self.directory(name, version))

    def bytes_of(self, name, version):
        return read_checkpoint(self.directory(name, version))

    def arguments(self):
        return ("--store", self.store, "--checkpoint", self.directory("policy", 0),
                "--lineage", "policy", "--with", f"draft={self.directory('draft', 0)}")


@contextlib.contextmanager
def serving_both(segue, name, lineages, *arguments):
    """A receiver whose `draft` is the further segment. Ends with nothing left."""
    draft = Segment(f"{name}.draft")
    draft.remove()
    try:
        with serving(segue, name, *lineages.arguments(), *arguments) as receiver:
            receiver.draft = draft
            yield receiver
    finally:
        draft.remove()
