# SPDX-License-Identifier: Apache-2.0
"""Publisher: makes versions from a trainer's tensors, in place, without checkpoint files."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from segue import _core
from segue import options as checked
from segue._core import PublishReport
from segue.errors import InvalidArgumentError
from segue.standing import standing
from segue.tensors import (Described, Module, Tensors, TensorSpec, describe_all, describe_anywhere,
                           pairs_of)


@dataclass(frozen=True)
class BaseReader:
    """A publisher's base whose tensors come one by one. `specs`: of all tensors of the model, a
    mapping or pairs of name and TensorSpec; `owned`: names of this owner's. `read(name, address,
    size)` is called once for each of these that has bytes, in the order of the names' bytes; it
    writes `size` bytes at `address`, which is where the baseline keeps them."""

    specs: Mapping[str, TensorSpec] | Iterable[tuple[str, TensorSpec]]
    owned: Sequence[str]
    read: Callable[[str, int, int], None]


Base = str | os.PathLike[str] | Mapping[str, Any] | Iterable[tuple[str, Any]] | Module | BaseReader


class Publisher:
    """Publishes each step of a trainer as a version of a lineage.

    It keeps a copy of the last version that is durable in the store (the baseline) and compares
    tensors with it; the trainer's own memory is read in place and needed no longer when a call
    returns. A version that fails, in whatever way, leaves the baseline where it was.

    `store`: URL ("dir:PATH", a path, "http(s)://...", "s3://..."). `base`: the bytes of a version:
    a checkpoint's directory, or a mapping, pairs of name and tensor, or a module of torch; with
    several owners those of others as `TensorSpec(dtype, shape)`, or (with a directory) `owned`
    names, None for all; or a `segue.publisher.BaseReader`.
    VersionMismatchError where the lineage is there and the bytes are none of its versions.

    `owner`, `owners`, `session`: this trainer rank, how many there are, and a name that they share
    and that is new for each start of the job. `owner_timeout`, `cohort_timeout`: seconds.
    `threads`: 0 for all cores. `retain`: versions to keep, 0 for all. `anchors`: names, or pairs of
    name and version. `branch`: the trainer has gone back to an older version.
    `missing_is_unchanged`: tensors that are not put count as unchanged. `cohort`: URLs of engines
    that must have a version before the next one begins, at most `cohort_timeout` seconds; `token`:
    what they ask for ("Authorization: Bearer ..."), also in wait_for(). `chunk_size`, `shard_size`:
    bytes, for a new lineage. `sign_key`, `public_keys`: paths of PEM files.

    `device`: "cuda:0", ...: the GPU in whose memory the tensors are; None: that of the base's
    tensors, and the CPU where the base is files. The baseline lies there too, or with
    `baseline_on_host` in memory of the host that the GPU reads.

    One thread at a time uses it. Ctrl-C during a call is raised when the call has ended: what is
    handed to the store is not left half way.
    """

    def __init__(self, store: str | os.PathLike[str], *, lineage: str = "default", base: Base,
                 owned: Sequence[str] | None = None, owner: int = 0, owners: int = 1,
                 session: str = "", profile: str = "sparse-zstd", threads: int = 0,
                 retain: int = 0, anchors: Iterable[str | tuple[str, int | None]] = (),
                 branch: bool = False, missing_is_unchanged: bool = False,
                 owner_timeout: float = 600.0, sign_key: str | os.PathLike[str] | None = None,
                 public_keys: Sequence[str | os.PathLike[str]] = (), chunk_size: int | None = None,
                 shard_size: int | None = None, cohort: Iterable[str] | None = None,
                 cohort_timeout: float = 60.0, token: str = "", device: str | None = None,
                 baseline_on_host: bool = False) -> None:
        options = _core.PublisherOptions()
        options.store = checked.path("store", store)
        options.lineage = checked.text("lineage", lineage)
        options.profile = checked.text("profile", profile)
        options.threads = checked.count("threads", threads, most=checked.THREADS_MAX)
        options.retain = checked.count("retain", retain)
        options.allow_branch = checked.flag("branch", branch)
        options.missing_is_unchanged = checked.flag("missing_is_unchanged", missing_is_unchanged)
        options.owner = checked.count("owner", owner, most=checked.OWNERS_MAX)
        options.owner_count = checked.count("owners", owners, 1, checked.OWNERS_MAX)
        options.session = checked.text("session", session)
        options.owner_timeout_seconds = checked.seconds("owner_timeout", owner_timeout)
        options.chunk_size = checked.count_or_none("chunk_size", chunk_size, 1)
        if shard_size is not None:
            options.shard_size = checked.count("shard_size", shard_size, 1)
        options.set_keys("" if sign_key is None else checked.path("sign_key", sign_key),
                         checked.paths("public_keys", public_keys))
        for anchor in checked.several("anchors", anchors):
            options.add_anchor(*_anchor(anchor))
        self._token = checked.text("token", token)
        engines = [] if cohort is None else checked.texts("cohort", cohort)
        if engines:
            options.set_cohort(engines, self._token, checked.seconds("cohort_timeout",
                                                                     cohort_timeout))
        self._device = "" if device in (None, "cpu") else checked.text("device", device)
        options.device = self._device
        options.baseline_on_host = checked.flag("baseline_on_host", baseline_on_host)
        self._publishing = threading.Lock()
        self._closed = False
        self._name = f"lineage {options.lineage!r} in {options.store!r}"
        self._core = self._open(options, base, owned, device is None)

    def _open(self, options: Any, base: Base, owned: Sequence[str] | None, any_device: bool) -> Any:
        names = None if owned is None else checked.texts("owned", owned)
        if isinstance(base, (str, os.PathLike)):
            return _core.Publisher.from_checkpoint(options, checked.path("base", base), names)
        if isinstance(base, BaseReader):
            specs = [_source(entry) for entry in pairs_of(base.specs)]
            return _core.Publisher.from_reader(options, specs, list(base.owned), base.read)
        if names is not None:
            raise InvalidArgumentError(
                "'owned' goes with a checkpoint's directory; give TensorSpec for tensors of others")
        described = [(checked.text("a tensor's name", name), tensor)
                     if isinstance(tensor, TensorSpec) else describe_anywhere(name, tensor)
                     for name, tensor in pairs_of(base)]
        if not described:
            raise InvalidArgumentError("the base has no tensor; was its iterator used before?")
        if any_device:
            self._device = options.device = _device_of(described)
        self._check_devices([one for one in described if isinstance(one, Described)])
        return _core.Publisher.from_tensors(options, [_source(entry) for entry in described])

    def publish(self, tensors: Tensors, *, step: int | None = None) -> PublishReport:
        """Makes the next version (or number `step`) of all `tensors`: a mapping, pairs of name and
        tensor, or a module of torch (its `state_dict()`). They are compared on all threads at once,
        so all of them are alive until it returns, and nothing writes to them: a write that is
        noticed (those that torch counts, and bytes that disagree with themselves) is an
        InvalidArgumentError with nothing published.

        InvalidArgumentError, naming the tensor, with nothing published, for one that is
        not of the model, or not of its dtype and shape, or missing. A version that is there already
        with these bytes is no error: `already_published` says so, and nothing has changed. Returns
        a PublishReport."""
        described = describe_all(tensors)
        if not self._publishing.acquire(blocking=False):
            raise InvalidArgumentError("another thread uses this publisher")
        try:
            self._core.begin(checked.count_or_none("step", step))
            return self._publish_begun(described)
        finally:
            self._publishing.release()

    def _publish_begun(self, described: list[Described]) -> PublishReport:
        try:
            self._put_all(described)
            return self._core.commit()
        except BaseException:
            self._forget()
            raise

    def _put_all(self, described: list[Described]) -> None:
        self._check_devices(described)
        before = [tensor.state() for tensor in described]
        self._core.put_all([tensor.source() for tensor in described])
        self._check_still(described, before)

    def _check_devices(self, described: list[Described]) -> None:
        """An address of another memory than the publisher's must never be followed."""
        for tensor in described:
            if tensor.device != self._device and tensor.nbytes:
                raise InvalidArgumentError(
                    f"tensor '{tensor.name}': it is on device '{tensor.device or 'cpu'}', and the "
                    f"publisher's tensors on '{self._device or 'cpu'}'")

    def _check_still(self, described: list[Described], before: list[tuple[int, ...]]) -> None:
        for tensor, state in zip(described, before):
            if tensor.state() != state and not tensor.copies():
                self._forget()
                raise InvalidArgumentError(
                    f"tensor '{tensor.name}' was written to, or its memory replaced, while it was "
                    "compared: nothing may until the call returns; the version was discarded")

    def _forget(self) -> None:
        """Discards what is begun, if the publisher is there still."""
        with contextlib.suppress(InvalidArgumentError):
            self._core.discard()

    def begin(self, step: int | None = None) -> None:
        """Begins a version, for tensors that come one by one: put() each, then commit()."""
        self._core.begin(checked.count_or_none("step", step))

    def put(self, name: str, tensor: Any) -> None:
        """Compares one tensor; its memory is free again when this returns. A tensor that is refused
        leaves the version begun; one that is written to meanwhile discards it."""
        described = describe_anywhere(name, tensor)
        self._check_devices([described])
        before = described.state()
        self._core.put(described.source())
        self._check_still([described], [before])

    def put_all(self, tensors: Tensors) -> None:
        """Compares several tensors (what publish() takes) on all threads at once. One that is
        refused or written to meanwhile discards the version."""
        self._put_all(describe_all(tensors))

    def put_unchanged(self, name: str) -> None:
        """Says that a tensor is as in the version before, without reading it."""
        self._core.put_unchanged(checked.text("name", name))

    def digests(self) -> tuple[str, str]:
        """Several owners: the digests of this one's tensors at the base and at the version that is
        begun (32 hexadecimal digits). `segue.publisher.add_digests` makes of all owners' those of
        the whole."""
        base, target = self._core.digests()
        return base, target

    def settle(self, base: str, target: str) -> None:
        """Several owners: tells the digests of the whole version, so that all of them refuse alike
        one that cannot be made, and know alike one that is there already. Before upload()."""
        self._core.settle(checked.text("base", base), checked.text("target", target))

    @property
    def baseline_digest(self) -> str:
        """Of this owner's tensors in the baseline."""
        digest: str = self._core.baseline_digest()
        return digest

    def settle_baseline(self, whole: str) -> None:
        """Several owners: tells the digest of all their baselines together, so that `version` is
        known from the start. VersionMismatchError where the lineage has no such version."""
        self._core.settle_baseline(checked.text("whole", whole))

    def upload(self) -> None:
        """Several owners: makes this one's payload durable, so that all can agree that they have
        done it before any commits. A failure discards the version."""
        self._core.upload()

    def commit(self) -> PublishReport:
        """Ends the version that is begun; returns a PublishReport. Where a tensor is missing it
        stays begun (InvalidArgumentError)."""
        return self._core.commit()

    def discard(self) -> None:
        """Forgets the version that is begun."""
        self._core.discard()

    def wait_for(self, engines: Iterable[str], timeout: float = 60.0) -> None:
        """Waits until each of these engines (URLs) serves the baseline's version or a later one of
        this lineage, by their digests: another run under the same name does not count.
        UnavailableError, naming the others, after `timeout` seconds."""
        self._core.wait_for(checked.texts("engines", engines), self._token,
                            checked.seconds("timeout", timeout))

    def move_baseline(self) -> None:
        """Goes on from a version that is published though its cohort is behind."""
        self._core.move_baseline()

    @property
    def version(self) -> int | None:
        """The baseline's version; None where no version is known to have these bytes yet."""
        return self._core.version()

    @property
    def baseline_bytes(self) -> int:
        """Bytes of the baseline in memory."""
        return self._core.baseline_bytes()

    def close(self) -> None:
        """Lets go of the baseline. Further calls fail."""
        self._core.close()
        self._closed = True

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        """Whose versions it makes and which one its baseline is; never raises."""
        return standing(self, getattr(self, "_name", "nothing"), self._standing)

    @staticmethod
    def _standing(core: _core.Publisher) -> str:
        version = core.version()
        held = "of no version yet" if version is None else f"version {version}"
        return f"baseline of {core.baseline_bytes()} bytes, {held}"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Publisher cannot be pickled: open one in each process")


def add_digests(digests: Iterable[str]) -> str:
    """The digest of tensors that have these digests: of all owners', that of the model."""
    whole: str = _core.add_digests(checked.texts("digests", digests))
    return whole


def _anchor(anchor: Any) -> tuple[str, int | None]:
    if isinstance(anchor, str):
        return checked.text("an anchor's name", anchor), None
    try:
        name, version = anchor
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"each of anchors is a name, or a pair of name and version, not {anchor!r}") from None
    return (checked.text("an anchor's name", name),
            checked.count_or_none(f"the version of anchor {name!r}", version))


def _device_of(described: list[Any]) -> str:
    """Of the first that has bytes; "" for the memory of this process."""
    return next((tensor.device for tensor in described
                 if isinstance(tensor, Described) and tensor.nbytes), "")


def _source(entry: Any) -> tuple[Any, ...]:
    if isinstance(entry, Described):
        return entry.source()
    name, spec = entry
    return (name, spec.dtype, tuple(spec.shape), None, 0)
