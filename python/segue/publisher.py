# SPDX-License-Identifier: Apache-2.0
"""Publisher: makes versions from a trainer's tensors, in place, without checkpoint files."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from segue import _core
from segue.errors import InvalidArgumentError
from segue.tensors import Described, TensorSpec, describe, describe_all


@dataclass(frozen=True)
class BaseReader:
    """A publisher's base whose tensors come one by one. `specs`: of all tensors of the model, a
    mapping or pairs of name and TensorSpec; `owned`: names of this owner's. `read(name, address,
    size)` is called once for each of these that has bytes, in the order of the names' bytes; it
    writes `size` bytes at `address`, which is where the baseline keeps them."""

    specs: Mapping[str, TensorSpec] | Iterable[tuple[str, TensorSpec]]
    owned: Sequence[str]
    read: Callable[[str, int, int], None]


class Publisher:
    """Publishes each step of a trainer as a version of a lineage.

    It keeps a copy of the last version that is durable in the store (the baseline) and compares
    tensors with it; the trainer's own memory is read in place and needed no longer when a call
    returns. A version that fails, in whatever way, leaves the baseline where it was.

    `store`: URL ("dir:PATH", a path, "http(s)://...", "s3://..."). `base`: the bytes of a version:
    a checkpoint's directory, or a mapping or pairs of name and tensor; with several owners those
    of others as `TensorSpec(dtype, shape)`, or (with a directory) `owned` names, None for all; or
    a `segue.publisher.BaseReader`.
    VersionMismatchError where the lineage is there and the bytes are none of its versions.

    `owner`, `owners`, `session`: this trainer rank, how many there are, and a name that they share
    and that is new for each start of the job. `owner_timeout`, `cohort_timeout`: seconds.
    `threads`: 0 for all cores. `retain`: versions to keep, 0 for all. `anchors`: names, or pairs of
    name and version. `branch`: the trainer has gone back to an older version.
    `missing_is_unchanged`: tensors that are not put count as unchanged. `cohort`: URLs of engines
    that must have a version before the next one begins. `chunk_size`, `shard_size`: bytes, for a
    new lineage. `sign_key`, `public_keys`: paths of PEM files.

    One thread at a time uses it. Ctrl-C during a call is raised when the call has ended: what is
    handed to the store is not left half way.
    """

    def __init__(self, store, *, lineage="default", base, owned=None, owner=0, owners=1, session="",
                 profile="sparse-zstd", threads=0, retain=0, anchors=(), branch=False,
                 missing_is_unchanged=False, owner_timeout=600.0, sign_key=None, public_keys=(),
                 chunk_size=None, shard_size=None, cohort=None, cohort_timeout=60.0, token=""):
        options = _core.PublisherOptions()
        options.store, options.lineage = os.fspath(store), lineage
        options.profile, options.threads, options.retain = profile, threads, retain
        options.allow_branch, options.missing_is_unchanged = branch, missing_is_unchanged
        options.owner, options.owner_count, options.session = owner, owners, session
        options.owner_timeout_seconds = owner_timeout
        options.chunk_size = chunk_size
        if shard_size is not None:
            options.shard_size = shard_size
        options.set_keys(os.fspath(sign_key or ""), [os.fspath(key) for key in public_keys])
        for anchor in anchors:
            options.add_anchor(*((anchor, None) if isinstance(anchor, str) else anchor))
        if cohort:
            options.set_cohort(list(cohort), token, cohort_timeout)
        self._token = token
        self._core = self._open(options, base, owned)

    @staticmethod
    def _open(options, base, owned):
        if isinstance(base, (str, os.PathLike)):
            return _core.Publisher.from_checkpoint(
                options, os.fspath(base), None if owned is None else list(owned))
        if isinstance(base, BaseReader):
            specs = [_source(entry) for entry in _pairs(base.specs)]
            return _core.Publisher.from_reader(options, specs, list(base.owned), base.read)
        if owned is not None:
            raise InvalidArgumentError(
                "'owned' goes with a checkpoint's directory; give TensorSpec for tensors of others")
        described = [(name, tensor) if isinstance(tensor, TensorSpec) else describe(name, tensor)
                     for name, tensor in _pairs(base)]
        return _core.Publisher.from_tensors(options, [_source(entry) for entry in described])

    def publish(self, tensors, *, step=None):
        """Makes the next version (or number `step`) of all `tensors`: a mapping, or pairs of name
        and tensor. They are compared on all threads at once, so all of them are alive until it
        returns. InvalidArgumentError, naming the tensor, with nothing published, for one that is
        not of the model, or not of its dtype and shape, or missing. Returns a PublishReport."""
        described = describe_all(tensors)
        return self._core.publish([tensor.source() for tensor in described], step)

    def begin(self, step=None):
        """Begins a version, for tensors that come one by one: put() each, then commit()."""
        self._core.begin(step)

    def put(self, name, tensor):
        """Compares one tensor; its memory is free again when this returns. A tensor that is refused
        leaves the version begun."""
        described = describe(name, tensor)  # Keeps what owns the bytes until they are read.
        self._core.put(described.source())

    def put_all(self, tensors):
        """Compares several tensors (a mapping, or pairs of name and tensor) on all threads at once.
        One that is refused discards the version."""
        described = describe_all(tensors)
        self._core.put_all([tensor.source() for tensor in described])

    def put_unchanged(self, name):
        """Says that a tensor is as in the version before, without reading it."""
        self._core.put_unchanged(name)

    def upload(self):
        """Several owners: makes this one's payload durable, so that all can agree that they have
        done it before any commits. A failure discards the version."""
        self._core.upload()

    def commit(self):
        """Ends the version that is begun; returns a PublishReport. Where a tensor is missing it
        stays begun (InvalidArgumentError)."""
        return self._core.commit()

    def discard(self):
        """Forgets the version that is begun."""
        self._core.discard()

    def wait_for(self, engines, timeout=60.0):
        """Waits until each of these engines (URLs) serves the baseline's version or a later one of
        this lineage, by their digests: another run under the same name does not count.
        UnavailableError, naming the others, after `timeout` seconds."""
        self._core.wait_for(list(engines), self._token, timeout)

    def move_baseline(self):
        """Goes on from a version that is published though its cohort is behind."""
        self._core.move_baseline()

    @property
    def version(self):
        """The baseline's version; None where no version is known to have these bytes yet."""
        return self._core.version()

    @property
    def baseline_bytes(self):
        """Bytes of the baseline in memory."""
        return self._core.baseline_bytes()

    def close(self):
        """Lets go of the baseline. Further calls fail."""
        self._core.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __reduce__(self):
        raise TypeError("a Publisher cannot be pickled: open one in each process")


def _pairs(tensors):
    return tensors.items() if hasattr(tensors, "items") else tensors


def _source(entry):
    if isinstance(entry, Described):
        return entry.source()
    name, spec = entry
    return (name, spec.dtype, tuple(spec.shape), None, 0)
