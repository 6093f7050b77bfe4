# SPDX-License-Identifier: Apache-2.0
"""Receiver: keeps live weights in step with a store, either tensors of this process or a segment
in shared memory that engines attach to."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from segue import _core
from segue import options as checked
from segue._core import ReceiverCounts, ReceiverStatus, UpdateReport, View
from segue.bound import Bound, Module, ModuleTensors, describe_found, is_module
from segue.errors import InvalidArgumentError
from segue.steps import UpdateSteps
from segue.tensors import Described, describe_anywhere, is_torch

Path: TypeAlias = str | os.PathLike[str]
# Adds a bytearray of 64-bit words up over all ranks, in place; or one of local_ranks().
SumOverRanks: TypeAlias = Callable[[bytearray], object] | _core.LocalRanks


class Receiver(UpdateSteps):
    """Brings live weights from version to version: stages a delta while they are used, holds the
    users at the gate for the apply alone, and reports a version only after proof.

    For tensors of this process, bind them, then update():

        receiver = segue.Receiver("dir:/mnt/run7")
        receiver.bind_module(model)          # Or bind(name, tensor), one by one.
        receiver.update()                    # The newest version; the tensors are written in place.
        with receiver.step(): ...            # In the threads that compute with them.

    For engines of other processes, give a `name`: the receiver loads `checkpoint` into the shared
    memory segment of that name, which segue.attach() finds (`rebuild`: whatever it holds).

    `checkpoint`: directory of a version, also what rebuild() reads. `staging`: directory for
    payload files. `threads`: for the apply, 0 for all cores; `background_threads`: for what runs
    beside the engine. `gate_timeout`: seconds to wait until no step runs, 0 or more. `scrub_rate`:
    bytes a second to check at rest, 0 for none. `sign_key`: PEM file of a private key, whose
    signatures are taken too; `public_keys`: a list of PEM files. With any, what none of them has
    signed is refused. `hooks`: control of an engine (`engine_hooks`, `http_hooks`).
    `close_gate(seconds)`, `open_gate()`: a gate of one's own, not step(), called by the thread that
    applies; close_gate raises where the readers do not stop (UnavailableError, for "later").
    `ranks`: how many receivers there are for one engine, of which this is number `rank`;
    `sum_over_ranks(words)` adds a bytearray of 64-bit integers up over all of them, modulo 2^64, in
    place, or is this rank's one of `local_ranks(count)`. Every rank makes the same calls in the
    same order.

    For tensors on a GPU (docs/cuda.md): `decoder`, who decodes Snappy and LZ4 there, "engine" (the
    decompression engine), "multiprocessors", "nvcomp" or "processor", None for the first that there
    is, without nvCOMP; `device_memory`: bytes of the GPU and of pinned memory together that staging
    may take, 0 for no bound; `keep_slots`: buffers stay from one update to the next.

    Any thread may call it. Exceptions of callbacks are the cause (`__cause__`) of what is raised.
    Ctrl-C ends a wait for a prepare, at the gate or for the store (nothing is changed then, but a
    rebuild that has begun to load leaves the weights poisoned); an apply runs to its end first.
    """

    def __init__(self, store: Path, *, lineage: str = "default", checkpoint: Path | None = None,
                 name: str | None = None, staging: Path | None = None, threads: int = 0,
                 background_threads: int = 1, gate_timeout: float = 30.0, scrub_rate: int = 0,
                 rebuild: bool = False, sign_key: Path | None = None,
                 public_keys: Iterable[Path] = (), hooks: _core.EngineHooks | None = None,
                 close_gate: Callable[[float], object] | None = None,
                 open_gate: Callable[[], object] | None = None, rank: int = 0, ranks: int = 1,
                 sum_over_ranks: SumOverRanks | None = None, decoder: str | None = None,
                 device_memory: int = 0, keep_slots: bool = True) -> None:
        super().__init__()
        options = _core.ReceiverOptions()
        options.store = checked.path("store", store)
        options.lineage = checked.text("lineage", lineage)
        options.checkpoint = _path_or_none("checkpoint", checkpoint)
        options.name = "" if name is None else checked.text("name", name)
        options.staging = _path_or_none("staging", staging)
        options.threads = checked.count("threads", threads, most=checked.THREADS_MAX)
        options.background_threads = checked.count("background_threads", background_threads,
                                                   most=checked.THREADS_MAX)
        options.gate_timeout = checked.seconds("gate_timeout", gate_timeout)
        options.scrub_rate = checked.count("scrub_rate", scrub_rate)
        options.rebuild = checked.flag("rebuild", rebuild)
        options.catch_up = bool(options.name)
        options.set_keys(_key("sign_key", sign_key) if sign_key is not None else "",
                         [_key("each of public_keys", key)
                          for key in checked.several("public_keys", public_keys)])
        if (close_gate is None) != (open_gate is None):
            raise InvalidArgumentError("close_gate and open_gate go together")
        _check_ranks(rank, ranks, sum_over_ranks)
        self._options, self._hooks = options, hooks
        self._gate = (close_gate, open_gate)
        self._sum_over_ranks = sum_over_ranks
        self._device_options = ("" if decoder is None else checked.text("decoder", decoder),
                                checked.count("device_memory", device_memory),
                                checked.flag("keep_slots", keep_slots))
        self._parts: list[tuple[Any, View | None, int, int]] = []
        self._bound = Bound()
        self._whole: dict[str, int] = {}  # Names that are bound without a view, and where.
        self._in_group = False  # Then it moves with that alone.

    def bind(self, name: str, tensor: Any, view: View | None = None, *, dtype: str | None = None,
             shape: Sequence[int] | None = None, copy: int = 0, copies: int = 1) -> None:
        """Binds a tensor of the model, or a part of it, to its memory here, before open().

        Without a `view` the tensor has the checkpoint's dtype and shape. With one (`segue.View`),
        `tensor` is the buffer, and `dtype` and `shape` are the checkpoint's. The same name may come
        several times, for several parts; the same memory under two names is tied (its versions must
        be equal). `copy` of `copies`: the same part at several places.

        `tensor` may be a callable without arguments that returns the tensor which the model uses at
        that time, `lambda: model.head.weight` say; it is asked again before each update.

        The receiver holds a reference to the tensor until close(), and notices when its memory was
        replaced (`tensor.data = ...`, `resize_`): it refuses to go on then. That the model uses
        another tensor by now it notices through a callable alone, or bind_module(); never bind
        items of `state_dict()` or `.data`, which are other objects than the parameters.
        InvalidArgumentError, with nothing bound, for what is not plain, contiguous, writable memory
        of this process or of a CUDA GPU. All tensors of one receiver are on one device. On a GPU an
        apply waits first for all that this process has launched there, so that a step() may end
        when its kernels are launched; addresses never change, and captured CUDA graphs stay
        right."""
        self._check_may_bind()
        name = checked.text("a tensor's name", name)
        if is_module(tensor):
            raise InvalidArgumentError(f"tensor '{name}': a module is bound with bind_module()")
        if callable(tensor) and not is_torch(tensor):
            found = describe_found(name, tensor)
        else:
            found = describe_anywhere(name, tensor)
        copy, copies = checked.count("copy", copy), checked.count("copies", copies, 1)
        with self._turn():
            self._bind(name, found, view, dtype, shape, copy, copies)

    def bind_module(self, module: Module,
                    rename: Callable[[str], str | None] | None = None) -> None:
        """Binds all of a torch module's `state_dict()`, each as it is, to the tensors that the
        module computes with, before open(). `rename(name)`: what the checkpoint calls it, None for
        what is not in the checkpoint.

        The module is looked through again before each update and each step(), 0.1 µs a tensor:
        where it has another tensor by then, or the same one in other memory (`.float()`, `.to()`,
        `p.data = ...`, a new parameter or submodule, `load_state_dict(assign=True)`), both refuse
        with InvalidArgumentError, naming it. Nothing is bound where one tensor is refused."""
        self._check_may_bind()
        if not is_module(module):
            raise InvalidArgumentError(f"a {type(module).__name__} is no module of torch; bind() "
                                       "takes tensors by name")
        tensors = ModuleTensors(module)
        found = []
        for name, tensor in tensors.found:
            known_as = name if rename is None else rename(name)
            if known_as is not None:
                found.append((known_as, describe_anywhere(name, tensor)))
        with self._turn():
            for name, described in found:
                self._check_part(name, described, None, 1)
            for name, described in found:
                self._bind(name, described, None, None, None, 0, 1)
            self._bound.add_module(tensors)

    def _check_may_bind(self) -> None:
        if self._core is not None or self._closed or self._in_group:
            raise InvalidArgumentError("bind() comes before open(), and before a group")
        if self._options.name:
            raise InvalidArgumentError("a receiver with a segment has no tensors to bind")

    def _check_part(self, name: str, found: Described, view: View | None, copies: int) -> None:
        self._check_may_bind()
        if not found.writable:
            raise InvalidArgumentError(f"tensor '{name}': its memory is read only")
        if found.copies():
            raise InvalidArgumentError(
                f"tensor '{name}': its __dlpack__ gives a copy each time, which an update would "
                "write to in its place; bind the tensor that owns the memory")
        if self._bound.device not in (None, found.device):
            raise InvalidArgumentError(
                f"tensor '{name}': it is on device '{found.device or 'cpu'}', those before on "
                f"'{self._bound.device or 'cpu'}'; one receiver has one device's tensors")
        if view is None and copies == 1 and name in self._whole:
            raise InvalidArgumentError(
                f"tensor '{name}' is bound already, and whole: parts of one tensor have a view "
                "each; several places that hold the same are copy=0, copy=1, ... of copies=")

    def _bind(self, name: str, found: Described, view: View | None, dtype: str | None,
              shape: Sequence[int] | None, copy: int, copies: int) -> None:
        self._check_part(name, found, view, copies)
        if view is None and copies == 1:
            self._whole[name] = found.address
        source = (name, dtype or found.dtype, tuple(found.shape if shape is None else shape),
                  found.address, found.nbytes)
        self._parts.append((source, view, copy, copies))
        self._bound.add(found)

    def open(self) -> "Receiver":
        """Proves which version the weights are: bound tensors stay at it, a segment goes to the
        newest. VersionMismatchError where they are none; InvalidArgumentError for tensors that
        overlap, are missing, are not those of the lineage, lie in memory that is mapped for
        reading, or that another receiver of this process has bound. Where the lineage has no
        version yet they are taken for its base, and `status.ready` stays False until an update has
        proven it. The first call that needs an open receiver opens it."""
        if self._core is None or self._closed:
            self._open_once(self._make_core)
        return self

    def _make_core(self) -> Any:
        if self._in_group:
            raise InvalidArgumentError(f"lineage '{self._options.lineage}' moves with its group "
                                       "alone")
        if self._options.name:
            return _core.Receiver.open_segment(self._options, self._hooks)
        return self._naming_replaced(_core.Receiver.open_bound, self._options, *self._model(),
                                     self._hooks)

    def step(self, timeout: float = 30.0, *, proven: bool = True) -> _core.LocalStep:
        """A context manager around each use of bound weights, in any thread of this process. Waits
        while an update is applied, at most `timeout` seconds (UnavailableError then). A thread that
        is inside neither enters again nor applies: update() there is refused
        (InvalidArgumentError). Inside it, `step.version` is the version that is read.

        Weights that are known to be wrong are not computed with, unless `proven` is False:
        CorruptionError where a scrub or a prepare found other bytes than the version's,
        TaintedError where an apply failed, VersionMismatchError where they are no version of the
        lineage that has appeared, InvalidArgumentError where the module has other tensors by now.
        `status.message` says the same, and `status.ready` is False then."""
        core = self.open()._core
        if proven:
            self._check_modules()
        return core.step(checked.seconds("timeout", timeout), proven)

    def update(self, to: int | None = None, *, flush_cache: bool = True,
               abort_requests: bool = False) -> UpdateReport:
        """Goes to version `to`, or the newest: prepare, apply, resume. Returns an UpdateReport.
        Where it fails before the apply, nothing is changed and nothing is left prepared.
        UnavailableError: the gate did not close in time, or another update runs (a follower's too:
        beside follow() one leaves it to the follower). TaintedError: the weights are poisoned,
        rebuild() them."""
        return self._call("update", checked.count_or_none("to", to), flush_cache, abort_requests)

    def prepare(self, to: int | None = None, session: str = "", base: int | None = None) -> None:
        """Begins to fetch, check and stage in the background, and returns at once. `base`: refused
        if another version is held. The session's name is for the calls that follow."""
        self._call("prepare", checked.text("session", session), checked.count_or_none("to", to),
                   checked.count_or_none("base", base))

    def follow(self, interval: float = 0.1) -> None:
        """From now on looks for newer versions every `interval` seconds (above 0), in the
        background, and takes them. What keeps it from doing so `status.message` says."""
        self._call("follow", positive_seconds("interval", interval))

    def rebuild(self, to: int | None = None) -> None:
        """Reads the checkpoint again (`Receiver(checkpoint=...)`) and goes to version `to`, or the
        newest."""
        self._check_has_checkpoint()
        self._call("rebuild", checked.count_or_none("to", to))

    def versions(self) -> list[int]:
        """Versions that the store offers now, ascending. Each call is a look at the store."""
        return self._call("versions")

    @property
    def status(self) -> ReceiverStatus:
        """What is held and done now: a ReceiverStatus (`as_dict()`; it can be pickled)."""
        return self._call("status")

    @property
    def counts(self) -> ReceiverCounts:
        """What was counted since it was opened, for who watches it over days: a ReceiverCounts
        (`as_dict()`; it can be pickled), with `pauses` a PauseCounts."""
        return self._call("counts")

    def close(self) -> None:
        """Ends the follower, and waits at the gate or for a store's server (UnavailableError in
        the calls that wait), waits for other calls that are under way (an open too), and lets go of
        the tensors, which keep the version that they are at. What is prepared is given up, what is
        applied is resumed; where the engine cannot be told, that is raised, and closed it is.
        Further calls fail. Refused (InvalidArgumentError) in callbacks."""
        try:
            self._close_core()
        finally:
            if self._closed:
                self._parts, self._bound, self._whole = [], Bound(), {}

    def _called(self) -> str:
        options = getattr(self, "_options", None)
        if options is None:
            return "nothing"
        tensors = len({part[0][0] for part in getattr(self, "_parts", ())})
        held = (f"segment '{options.name}'" if options.name
                else f"{tensors} tensor{'s' * (tensors != 1)}")
        group = ", in a group" if getattr(self, "_in_group", False) else ""
        return f"lineage '{options.lineage}' in '{options.store}', {held}{group}"

    def _standing(self, status: ReceiverStatus) -> str:
        return standing_of(status)

    def _check_modules(self) -> None:
        name = self._bound.replaced_in_module()
        if name is not None:
            raise InvalidArgumentError(
                f"tensor '{name}': its memory was replaced while it was bound: the module computes "
                "with another tensor, which no update reaches; close this receiver and bind the "
                "module to a new one")

    def _check_has_checkpoint(self) -> None:
        if not self._options.checkpoint and not self._options.name:
            raise InvalidArgumentError(
                f"lineage '{self._options.lineage}': rebuild() reads a version's bytes from a "
                "checkpoint's directory, and none was given: Receiver(checkpoint=...). Without "
                "one, close() this receiver, copy a version's bytes into the tensors yourself, and "
                "bind them to a new receiver, which proves them")

    def _raise_if_replaced(self, error: Exception) -> None:
        replaced = self._bound.replaced()
        if not replaced:
            return
        raise InvalidArgumentError(
            f"tensor '{replaced}': its memory was replaced while it was bound; nothing was "
            f"written ({error})") from error

    def _model(self) -> tuple[Any, ...]:
        """What is bound, as the module takes it."""
        self._bound.refuse_read_only()
        place = (self._bound.device or "", *self._device_options)
        return (self._parts, place, self._bound.generation, self._sum_over_ranks, *self._gate)

    def _check_may_join(self) -> None:
        """For a group that is about to take this receiver; in this thread's turn."""
        if self._core is not None or self._closed or self._in_group:
            raise InvalidArgumentError("a group takes receivers that were not opened, each once")
        if self._hooks is not None:
            raise InvalidArgumentError("hooks are the group's: its receivers have none")


def standing_of(status: ReceiverStatus) -> str:
    """For repr(): the version that is held, whether it is proven to be right, and the state."""
    ready = "" if status.ready else ", not ready"
    return f"at version {status.version}, {status.state}{ready}"


def _path_or_none(name: str, value: Path | None) -> str:
    return "" if value is None else checked.path(name, value)


def _key(name: str, value: Path) -> str:
    """An empty name must not come to mean that nothing is signed."""
    found = checked.path(name, value)
    if not found:
        raise InvalidArgumentError(f"{name} is the path of a PEM file, not an empty one")
    return found


def _check_ranks(rank: int, ranks: int, sum_over_ranks: SumOverRanks | None) -> None:
    ranks = checked.count("ranks", ranks, 1)
    rank = checked.count("rank", rank)
    if isinstance(sum_over_ranks, (list, tuple)):
        raise InvalidArgumentError("sum_over_ranks is one rank's: local_ranks(ranks)[rank], made "
                                   "once for all of them")
    if (ranks > 1) != (sum_over_ranks is not None) or rank >= ranks:
        raise InvalidArgumentError("several ranks need sum_over_ranks, and a rank below ranks")


def positive_seconds(name: str, value: float) -> float:
    """A number of seconds above 0."""
    found = checked.seconds(name, value)
    if found <= 0:
        raise InvalidArgumentError(f"{name} is a number of seconds above 0, not {value!r}")
    return found


def local_ranks(count: int, timeout: float = 30.0) -> list[_core.LocalRanks]:
    """`sum_over_ranks` for `count` receivers that are used by as many threads of this process, one
    for each. A sum to which not all have come after `timeout` seconds fails for all
    (UnavailableError)."""
    return _core.make_local_ranks(checked.count("count", count, 1, checked.OWNERS_MAX),
                                  checked.seconds("timeout", timeout))


def engine_hooks(*, pause: Callable[[bool, bool], object], resume: Callable[[], object],
                 flush: Callable[[], Sequence[str]] | None = None,
                 set_version: Callable[[str], object] | None = None) -> _core.EngineHooks:
    """Control of an engine, by callables that return once the engine has done it and raise where it
    has not: pause(abort_requests, flush_cache); flush(), which returns the names of the caches that
    were reset; set_version(label); resume(). What one of them raises before the first byte is
    written ends the update with nothing changed, after that it leaves the engine paused; it is the
    `__cause__` of what the update raises."""
    return _core.make_hooks(pause, flush, set_version, resume)


def http_hooks(kind: str, url: str, *, token: str = "",
               caches: Iterable[str] = ("kv", "mm", "encoder"), timeout: float = 30.0,
               tries: int = 5) -> _core.EngineHooks:
    """Control of an engine over its own HTTP endpoints. `kind`: "sglang" or "vllm"; `url`:
    "http://HOST:PORT"; `token`: its key; `caches`: those that are reset after an apply (vLLM).
    `timeout`: seconds for one request; `tries`: for each step. InvalidArgumentError for another
    kind, UnavailableError from the update where the engine does not answer."""
    return _core.make_http_hooks(checked.text("kind", kind), checked.text("url", url),
                                 checked.text("token", token), checked.texts("caches", caches),
                                 checked.seconds("timeout", timeout),
                                 checked.count("tries", tries, 1, checked.OWNERS_MAX))
