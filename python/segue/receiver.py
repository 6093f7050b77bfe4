# SPDX-License-Identifier: Apache-2.0
"""Receiver: keeps live weights in step with a store, either tensors of this process or a segment
in shared memory that engines attach to."""

import os

from segue import _core
from segue.errors import InvalidArgumentError
from segue.steps import UpdateSteps
from segue.tensors import describe_anywhere


class Receiver(UpdateSteps):
    """Brings live weights from version to version: stages a delta while they are used, holds the
    users at the gate for the apply alone, and reports a version only after proof.

    For tensors of this process, bind() each of them, then update():

        receiver = segue.Receiver("dir:/mnt/run7")
        for name, parameter in model.named_parameters():
            receiver.bind(name, parameter.data)
        receiver.update()                    # The newest version; the tensors are written in place.
        with receiver.step(): ...            # In the threads that compute with them.

    For engines of other processes, give a `name`: the receiver loads `checkpoint` into the shared
    memory segment of that name, which segue.attach() finds (`rebuild`: whatever it holds).

    `staging`: directory for payload files. `threads`: for the apply, 0 for all cores;
    `background_threads`: for what runs beside the engine. `gate_timeout`: seconds to wait until no
    step runs. `scrub_rate`: bytes a second to check at rest, 0 for none. `public_keys`: PEM
    files; with any, what none of them has signed is refused. `hooks`: control of an engine
    (`engine_hooks`, `http_hooks`). `close_gate(seconds)`, `open_gate()`: a gate of one's own, not
    step(), called by the thread that applies; close_gate raises where the readers do not stop.
    `ranks`: how many receivers there are for one engine, of which this is number `rank`;
    `sum_over_ranks(words)` adds a bytearray of 64-bit integers up over all of them, modulo 2^64, in
    place, or is one of `local_ranks(count)`. Every rank makes the same calls in the same order.

    Any thread may call it. Exceptions of callbacks are the cause (`__cause__`) of what is raised.
    Ctrl-C ends a wait for a prepare (nothing is changed then); an apply runs to its end first.
    """

    def __init__(self, store, *, lineage="default", checkpoint=None, name=None, staging=None,
                 threads=0, background_threads=1, gate_timeout=30.0, scrub_rate=0, rebuild=False,
                 sign_key=None, public_keys=(), hooks=None, close_gate=None, open_gate=None,
                 rank=0, ranks=1, sum_over_ranks=None):
        super().__init__()
        options = _core.ReceiverOptions()
        options.store, options.lineage = os.fspath(store), lineage
        options.checkpoint = os.fspath(checkpoint or "")
        options.name, options.staging = name or "", os.fspath(staging or "")
        options.threads, options.background_threads = threads, background_threads
        options.gate_timeout, options.scrub_rate = gate_timeout, scrub_rate
        options.rebuild, options.catch_up = rebuild, bool(name)
        options.set_keys(os.fspath(sign_key or ""), [os.fspath(key) for key in public_keys])
        if (close_gate is None) != (open_gate is None):
            raise InvalidArgumentError("close_gate and open_gate go together")
        if (ranks > 1) != (sum_over_ranks is not None) or not 0 <= rank < max(ranks, 1):
            raise InvalidArgumentError("several ranks need sum_over_ranks, and a rank below ranks")
        self._options, self._hooks = options, hooks
        self._gate = (close_gate, open_gate)
        self._sum_over_ranks = sum_over_ranks
        self._parts, self._bound = [], _Bound()
        self._group = None  # That it moves with.

    def bind(self, name, tensor, view=None, *, dtype=None, shape=None, copy=0, copies=1):
        """Binds a tensor of the model, or a part of it, to its memory here, before open().

        Without a `view` the tensor has the checkpoint's dtype and shape. With one (`segue.View`),
        `tensor` is the buffer, and `dtype` and `shape` are the checkpoint's. The same name may come
        several times, for several parts; the same memory under two names is tied (its versions must
        be equal). `copy` of `copies`: the same part at several places.

        The receiver holds a reference to the tensor until close(), and notices when its memory was
        replaced (`tensor.data = ...`, `resize_`): it refuses to go on then. InvalidArgumentError,
        with nothing bound, for what is not plain, contiguous, writable memory of this process or of
        a CUDA GPU. All tensors of one receiver are on one device. On a GPU an apply waits first for
        all that this process has launched there, so that a step() may end when its kernels are
        launched; addresses never change, and captured CUDA graphs stay right."""
        if self._options.name:
            raise InvalidArgumentError("a receiver with a segment has no tensors to bind")
        found = describe_anywhere(name, tensor)
        if not found.writable:
            raise InvalidArgumentError(f"tensor '{name}': its memory is read only")
        source = (name, dtype or found.dtype, tuple(found.shape if shape is None else shape),
                  found.address, found.nbytes)
        with self._turn():
            self._bind((source, view, copy, copies), found)

    def _bind(self, part, found):
        if self._core is not None or self._closed or self._group is not None:
            raise InvalidArgumentError("bind() comes before open(), and before a group")
        if self._bound.device not in (None, found.device):
            raise InvalidArgumentError(
                f"tensor '{part[0][0]}': it is on device '{found.device or 'cpu'}', those before "
                f"on '{self._bound.device or 'cpu'}'; one receiver has one device's tensors")
        self._parts.append(part)
        self._bound.add(found)

    def open(self):
        """Proves which version the weights are: bound tensors stay at it, a segment goes to the
        newest. VersionMismatchError where they are none, InvalidArgumentError for tensors that
        overlap, are missing, or are not those of the lineage. The first call that needs an open
        receiver opens it."""
        if self._core is None or self._closed:
            self._open_once(self._make_core)
        return self

    def _make_core(self):
        if self._group is not None:
            raise InvalidArgumentError(f"lineage '{self._options.lineage}' moves with its group "
                                       "alone")
        if self._options.name:
            return _core.Receiver.open_segment(self._options, self._hooks)
        return self._naming_replaced(_core.Receiver.open_bound, self._options, *self._model(),
                                     self._hooks)

    def step(self, timeout=30.0):
        """A context manager around each use of bound weights, in any thread of this process. Waits
        while an update is applied, at most `timeout` seconds (UnavailableError then). A thread that
        is inside neither enters again nor calls update()."""
        return self.open()._core.step(timeout)

    def update(self, to=None, *, flush_cache=True, abort_requests=False):
        """Goes to version `to`, or the newest: prepare, apply, resume. Returns an UpdateReport.
        Where it fails before the apply, nothing is changed and nothing is left prepared.
        UnavailableError: the gate did not close in time, or another update runs. TaintedError: the
        weights are poisoned, rebuild() them."""
        return self._call("update", to, flush_cache, abort_requests)

    def prepare(self, to=None, session="", base=None):
        """Begins to fetch, check and stage in the background, and returns at once. `base`: refused
        if another version is held. The session's name is for the calls that follow."""
        self._call("prepare", session, to, base)

    def follow(self, interval=0.1):
        """From now on looks for newer versions every `interval` seconds, in the background, and
        takes them."""
        self._call("follow", interval)

    def rebuild(self, to=None):
        """Reads the checkpoint again and goes to version `to`, or the newest."""
        self._call("rebuild", to)

    def versions(self):
        """Versions that the store offers now, ascending."""
        return self._call("versions")

    @property
    def status(self):
        """What is held and done now: a ReceiverStatus."""
        return self._call("status")

    def close(self):
        """Waits for calls that are under way (an open too), ends the follower and lets go of the
        tensors, which keep the version that they are at. What is prepared is given up, what is
        applied is resumed; where the engine cannot be told, that is raised, and closed it is.
        Further calls fail. Refused (InvalidArgumentError) in callbacks."""
        try:
            self._close_core()
        finally:
            if self._closed:
                self._parts, self._bound = [], _Bound()

    def _raise_if_replaced(self, error):
        replaced = self._bound.replaced()
        if not replaced:
            return
        raise InvalidArgumentError(
            f"tensor '{replaced}': its memory was replaced while it was bound; nothing was "
            f"written ({error})") from error

    def _model(self):
        """What is bound, as the module takes it."""
        return (self._parts, self._bound.device or "", self._bound.generation,
                self._sum_over_ranks, *self._gate)

    def _check_may_join(self):
        """For a group that is about to take this receiver; in this thread's turn."""
        if self._core is not None or self._closed or self._group is not None:
            raise InvalidArgumentError("a group takes receivers that were not opened, each once")
        if self._hooks is not None:
            raise InvalidArgumentError("hooks are the group's: its receivers have none")


class _Bound:
    """What is bound: keeps it alive, and tells whether it still lies where it lay. Knows no
    receiver, so that the two do not keep each other alive."""

    def __init__(self):
        self._tensors = []

    @property
    def device(self):
        """Of all of them; None while there is none."""
        return self._tensors[0].device if self._tensors else None

    def add(self, described):
        self._tensors.append(described)

    def replaced(self):
        """The name of a tensor that does not lie there any more, or None."""
        for tensor in self._tensors:
            if tensor.where() != (tensor.address, tensor.nbytes):
                return tensor.name
        return None

    def generation(self):
        """1 while nothing was replaced."""
        return 1 if self.replaced() is None else 2


def local_ranks(count, timeout=30.0):
    """`sum_over_ranks` for `count` receivers that are used by as many threads of this process."""
    return _core.make_local_ranks(count, timeout)


def engine_hooks(*, pause, resume, flush=None, set_version=None):
    """Control of an engine, by callables that return once the engine has done it and raise where it
    has not: pause(abort_requests, flush_cache); flush(), which returns the names of the caches that
    were reset; set_version(label); resume()."""
    return _core.make_hooks(pause, flush, set_version, resume)


def http_hooks(kind, url, *, token="", caches=("kv", "mm", "encoder"), timeout=30.0, tries=5):
    """Control of an engine over its own HTTP endpoints. `kind`: "sglang" or "vllm". `timeout`:
    seconds for one request; `tries`: for each step."""
    return _core.make_http_hooks(kind, url, token, list(caches), timeout, tries)
