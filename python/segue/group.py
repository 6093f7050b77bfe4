# SPDX-License-Identifier: Apache-2.0
"""ReceiverGroup: the lineages of one engine, a policy and its draft model say, moved together or
not at all; and steps that read all of them."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from segue import _core
from segue import options as checked
from segue._core import ReceiverCounts, ReceiverStatus, UpdateReport
from segue.errors import InvalidArgumentError
from segue.receiver import Receiver, positive_seconds, standing_of
from segue.steps import UpdateSteps
from segue.weights import Weights


class ReceiverGroup(UpdateSteps):
    """Receivers of one engine, as one: an update stages all, closes all gates, applies all, and
    only then opens them again. Where one lineage fails, none has moved.

        policy = segue.Receiver("dir:/mnt/run7", lineage="policy")
        draft = segue.Receiver("dir:/mnt/run7", lineage="draft")
        ...                                      # bind() the tensors of each.
        group = segue.ReceiverGroup([policy, draft])
        group.update()                           # The newest of each.
        group.update({"policy": 8, "draft": 3})  # A lineage that is not named stays.
        with group.step(): ...                   # In the threads that compute with them.

    `receivers`: up to 16, each of another lineage, none of them opened yet; from now on they move
    with the group alone. Their order is the one in which gates close, and in which engines of other
    processes enter them (`segue.step_all`). All have tensors of this process, or all have names.
    `hooks`: control of the engine; the receivers have none. `same_version`: "the newest" is the
    highest number that all lineages offer, for trainers that publish them in step. What two models
    share (a tied embedding) is a tensor of one lineage only: two would write the same bytes.

    Calls are those of Receiver, and so are errors; `gate_timeout` of the first receiver is for all
    gates together. docs/protocol.md, section 15.
    """

    _NOUN = "group"

    def __init__(self, receivers: Iterable[Receiver], *,
                 hooks: _core.EngineHooks | None = None, same_version: bool = False) -> None:
        super().__init__()
        self._receivers = checked.several("receivers", receivers)
        self._hooks = hooks
        self._same_version = checked.flag("same_version", same_version)
        for receiver in self._receivers:
            if not isinstance(receiver, Receiver):
                raise InvalidArgumentError("a group takes segue.Receiver, not "
                                           f"{type(receiver).__name__}")
        named = {bool(receiver._options.name) for receiver in self._receivers}
        if len(named) != 1:
            raise InvalidArgumentError("a group has receivers that all have a segment's name, or "
                                       "that all have tensors of this process")
        self._has_segments = named.pop()
        if len({id(receiver) for receiver in self._receivers}) != len(self._receivers):
            raise InvalidArgumentError("a receiver is in the group twice")
        self.lineages: list[str] = [receiver._options.lineage for receiver in self._receivers]
        if len(set(self.lineages)) != len(self.lineages):
            raise InvalidArgumentError(f"a lineage is in the group twice: {self.lineages}")
        with contextlib.ExitStack() as turns:
            for receiver in self._receivers:
                turns.enter_context(receiver._turn())
                receiver._check_may_join()
            for receiver in self._receivers:
                receiver._in_group = True

    def open(self) -> "ReceiverGroup":
        """Proves which versions the weights are: bound tensors stay at them, segments go to the
        newest, together. The first call that needs an open group opens it."""
        if self._core is None or self._closed:
            self._open_once(self._make_core)
        return self

    def _make_core(self) -> Any:
        options = [receiver._options for receiver in self._receivers]
        if self._has_segments:
            return _core.ReceiverGroup.open_segments(options, self._same_version, self._hooks)
        return self._naming_replaced(
            _core.ReceiverGroup.open_bound, options,
            [receiver._model() for receiver in self._receivers], self._same_version, self._hooks)

    def step(self, timeout: float = 30.0, *, proven: bool = True) -> _core.LocalStepOfAll:
        """A context manager around each use of the bound weights, of any of them, in any thread of
        this process. As Receiver.step(), for all lineages."""
        core = self.open()._core
        if proven:
            for receiver in self._receivers:
                receiver._check_modules()
        return core.step(checked.seconds("timeout", timeout), proven)

    def update(self, to: int | Mapping[str, int] | None = None, *, flush_cache: bool = True,
               abort_requests: bool = False) -> dict[str, UpdateReport]:
        """Goes to `to`: None (the newest of each), one number for all, or {lineage: version}, where
        a lineage that is not named stays. Returns {lineage: UpdateReport} of those that took part.
        Where it fails before the apply, nothing is changed and nothing is left prepared."""
        self._call("update", *_targets(to), flush_cache, abort_requests)
        took_part = to if isinstance(to, Mapping) else self.lineages
        return {lineage: status.last for lineage, status in self.status.items()
                if lineage in took_part}

    def prepare(self, to: int | Mapping[str, int] | None = None, session: str = "") -> None:
        """Begins to fetch, check and stage all, and returns at once."""
        self._call("prepare", checked.text("session", session), *_targets(to))

    def follow(self, interval: float = 0.1) -> None:
        """From now on looks every `interval` seconds, and takes the newest of each, together, as
        soon as any lineage has something newer (with `same_version`: once all have it)."""
        self._call("follow", positive_seconds("interval", interval))

    def rebuild(self, to: int | Mapping[str, int] | None = None) -> None:
        """Reads all checkpoints again and goes to `to`; a mapping must name all lineages."""
        for receiver in self._receivers:
            receiver._check_has_checkpoint()
        self._call("rebuild", *_targets(to))

    def versions(self) -> dict[str, list[int]]:
        """{lineage: versions that the store offers now, ascending}."""
        return {lineage: self._call("versions", lineage) for lineage in self.lineages}

    @property
    def status(self) -> dict[str, ReceiverStatus]:
        """{lineage: ReceiverStatus}; state and session are those of all."""
        return dict(zip(self.lineages, self._call("status")))

    @property
    def counts(self) -> dict[str, ReceiverCounts]:
        """{lineage: ReceiverCounts}; failures of updates and pauses are those of all."""
        return dict(zip(self.lineages, self._call("counts")))

    def close(self) -> None:
        """As of a Receiver, of all of them."""
        try:
            self._close_core()
        finally:
            if self._closed:
                for receiver in self._receivers:
                    receiver.close()

    def _called(self) -> str:
        return f"lineages {', '.join(map(repr, getattr(self, 'lineages', ())))}"

    def _standing(self, status: list[ReceiverStatus]) -> str:
        return "; ".join(f"'{lineage}' {standing_of(one)}"
                         for lineage, one in zip(self.lineages, status))

    def _raise_if_replaced(self, error: Exception) -> None:
        for receiver in self._receivers:
            receiver._raise_if_replaced(error)


def step_all(*weights: Weights, timeout: float = 30.0) -> _core.EngineStepOfAll:
    """A context manager around a forward step that reads several `Weights`, in the order of their
    group: inside it they are those that one update put together. `step.versions` says which.

        policy, draft = segue.attach("engine-0"), segue.attach("engine-0.draft")
        with segue.step_all(policy, draft) as step: ...

    While it waits (at most `timeout` seconds, UnavailableError then) it is inside none of them."""
    if len({id(one) for one in weights}) != len(weights):
        raise InvalidArgumentError("step_all is given the same weights twice")
    for one in weights:
        if not isinstance(one, Weights):
            raise InvalidArgumentError("step_all takes attached weights, one by one: "
                                       f"step_all(policy, draft), not a {type(one).__name__}")
    return _core.step_of_all([one._core for one in weights], checked.seconds("timeout", timeout))


def _targets(to: int | Mapping[str, int] | None) -> tuple[int | None, dict[str, int]]:
    """A version for all and versions by lineage, as the module takes them."""
    if not isinstance(to, Mapping):
        return checked.count_or_none("to", to), {}
    if not to:
        raise InvalidArgumentError("an empty mapping of versions names no lineage")
    return None, {checked.text("a lineage's name", lineage):
                  checked.count(f"to['{lineage}']", version) for lineage, version in to.items()}
