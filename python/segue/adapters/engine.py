# SPDX-License-Identifier: Apache-2.0
"""EngineReceiver: one rank of an inference engine, kept in step with a store.

It plans where the checkpoint's tensors lie in the engine's parameters, binds them, and runs the
receiver's steps so that all ranks take them or none. What must hold: every rank makes the same
calls in the same order, from one thread; the engine runs no forward step while `apply` or `update`
runs (it calls them from the thread that would run it, or is paused); parameters stay where they
are, which is checked again before each step.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from .. import (Error, InvalidArgumentError, NotFoundError, Receiver, UnavailableError,
                UnsupportedError, VersionMismatchError)
from . import bindings
from .ranks import Ranks

ENVIRONMENT = "SEGUE_"
ACTIONS = ("prepare", "apply", "update", "abort")


@dataclasses.dataclass
class EngineOptions:
    """Where an engine's weights come from. What is left out comes from the environment:
    SEGUE_STORE, SEGUE_LINEAGE, SEGUE_CHECKPOINT, SEGUE_STAGING, SEGUE_PUBLIC_KEYS (with ':' between
    them).

    `checkpoint`: the directory that the engine was started from; by default what the engine says
    itself. `static`: patterns of parameters that do not come from a checkpoint. `probe`: look for
    tensors that no table knows by their bytes.
    """

    store: str = ""
    lineage: str = ""
    checkpoint: str = ""
    staging: str = ""
    threads: int = 0
    gate_timeout_s: float = 30.0
    ranks_timeout_s: float = 600.0
    public_keys: list[str] = dataclasses.field(default_factory=list)
    static: list[str] = dataclasses.field(default_factory=list)
    probe: bool = True

    def completed(self, engine_checkpoint: str = "") -> EngineOptions:
        """The same with what the environment and the engine say."""
        keys = self.public_keys or [key for key in _environment("PUBLIC_KEYS").split(":") if key]
        options = dataclasses.replace(
            self, store=self.store or _environment("STORE"),
            lineage=self.lineage or _environment("LINEAGE") or "default",
            checkpoint=self.checkpoint or _environment("CHECKPOINT") or engine_checkpoint,
            staging=self.staging or _environment("STAGING"), public_keys=keys)
        if not options.store:
            raise InvalidArgumentError("no store is given: name one, or set SEGUE_STORE")
        if not os.path.isdir(options.checkpoint):
            raise NotFoundError(
                f"'{options.checkpoint}' is no directory: the checkpoint that the engine was "
                "started from is needed for the names of its tensors; name it, or set "
                "SEGUE_CHECKPOINT")
        return options


def _environment(name: str) -> str:
    return os.environ.get(ENVIRONMENT + name, "")


class EngineReceiver:
    """The receiver of one rank's parameters. `model`: a torch module, or a mapping from names to
    tensors; `topology`: this rank's place."""

    def __init__(self, model: object, options: EngineOptions, ranks: Ranks | None = None,
                 topology: bindings.Topology | None = None):
        self._model = model
        self.options = options
        self._ranks = ranks or Ranks()
        self._topology = topology or bindings.Topology(self._ranks.rank, self._ranks.size)
        self._receiver: Receiver | None = None
        self._bound: bindings.Shadows | None = None
        self.probed: list[str] = []

    def open(self) -> int:
        """Binds the weights and proves which version they are, which it returns; nothing is
        written. On any failure, at any rank, nothing is bound at all ranks."""
        if self._receiver is not None:
            return self.version
        self._receiver = self._bind_and_prove()
        return self.version

    def _bind_and_prove(self) -> Receiver:
        receiver, plan = self._bind()
        error = self._prove(receiver)
        if error is None:
            return receiver
        if not self._ranks.all(isinstance(error, VersionMismatchError)):
            raise error
        receiver, again = self._bind_suspects(plan, error)
        failed = self._prove(receiver)
        if failed is not None:
            raise failed from again
        return receiver

    def _bind_suspects(self, plan: bindings.BindingPlan,
                       error: Exception) -> tuple[Receiver, Exception]:
        """Under the tables' views the weights are no version. Where they are the checkpoint's but
        for some tensors, these are looked for by their bytes."""
        suspects, note = _suspects(plan)
        if not self._ranks.all(not note):
            raise VersionMismatchError(f"{error}; {note or 'see the other ranks'}") from error
        if self._ranks.all(not suspects):
            raise VersionMismatchError(f"{error}; they are those of the checkpoint "
                                       f"'{self.options.checkpoint}'") from error
        try:
            return self._bind(suspects, self._of_all_ranks(suspects))[0], error
        except UnsupportedError as unknown:
            raise VersionMismatchError(f"{error}; {unknown}") from error

    def _of_all_ranks(self, names: Sequence[str]) -> list[str]:
        """Tensors of the checkpoint that any rank names."""
        known = sorted(bindings.Checkpoint(self.options.checkpoint).tensors)
        chosen = set(names)
        flags = self._ranks.any([name in chosen for name in known])
        return [name for name, flag in zip(known, flags, strict=True) if flag]

    def _bind(self, distrusted: Sequence[str] = (),
              doubted: Sequence[str] = ()) -> tuple[Receiver, bindings.BindingPlan]:
        receiver = plan = error = None
        try:
            receiver = self._make()
            plan = bindings.plan_bindings(
                bindings.Checkpoint(self.options.checkpoint), self._model, self._topology,
                static=self.options.static, probe=self.options.probe, distrusted=distrusted,
                doubted=doubted)
            self._bound = bindings.bind_plan(receiver, plan)
            self.probed = plan.probed
        except Exception as failure:  # Raised again, once the other ranks know.
            error = failure
        self._ranks.agree(error, "binding the weights")
        return receiver, plan

    def _prove(self, receiver: Receiver) -> Exception | None:
        """Opens the receivers, which all do or none; why not, if they do not."""
        try:
            receiver.open()
        except Exception as error:  # Of which kind it was, the other ranks are asked.
            receiver.close()
            return error
        return None

    def _make(self) -> Receiver:
        options = self.options
        several = {}
        if self._ranks.size > 1:
            several = {"rank": self._ranks.rank, "ranks": self._ranks.size,
                       "sum_over_ranks": self._ranks.receiver_words}
        return Receiver(options.store, lineage=options.lineage, checkpoint=options.checkpoint,
                        staging=options.staging or None, threads=options.threads,
                        gate_timeout=options.gate_timeout_s,
                        public_keys=tuple(options.public_keys), **several)

    @property
    def version(self) -> int:
        """The version that the weights are."""
        return self._opened().status.version

    def status(self) -> dict:
        """State, version and message of this rank, for the engine's own interfaces."""
        if self._receiver is None:
            return {"state": "CLOSED", "ready": False, "rank": self._ranks.rank}
        status = self._receiver.status
        return {"state": status.state, "ready": status.ready, "version": status.version,
                "target": status.target_version, "lineage": status.lineage,
                "digest": status.digest, "message": status.message, "session": status.session,
                "rank": self._ranks.rank, "probed": self.probed}

    def prepare(self, to: int | None = None, session: str = "") -> int:
        """Begins to stage a version (by default the newest) and returns at once with its number.
        The engine may run on. Another one that was prepared and never applied is given up."""
        receiver = self._opened()
        target = self._target(to)
        session = session or _session(target)
        self._give_up_other(session, target)
        receiver.prepare(to=target, session=session)
        return target

    def _give_up_other(self, session: str, target: int | None = None) -> None:
        """What a controller that went away has left prepared, under this session's name too; all
        ranks have or none has."""
        receiver = self._opened()
        status = receiver.status
        if status.state not in ("PREPARING", "PREPARED") or (
                (status.session, status.target_version) == (session, target)):
            return
        try:
            receiver.wait_prepared()
        except Error:
            return  # It came to nothing, at all ranks.
        receiver.abort(status.session)

    def apply(self, to: int, session: str = "") -> dict:
        """Waits for what was prepared and writes it. The version held already is a success: a
        call may be repeated when its answer was lost (case E4)."""
        receiver, session = self._opened(), session or _session(to)
        self._check("applying")
        if receiver.status.version != to:
            receiver.wait_prepared()
            self._check_prepared(to, session)
            receiver.apply(session)
        if receiver.status.state == "APPLIED":
            receiver.resume(session)
        return self.status()

    def _check_prepared(self, to: int, session: str) -> None:
        """A session's name says nothing of what it holds."""
        status, error = self._opened().status, None
        if status.state == "PREPARED" and status.session == session and (
                status.target_version != to):
            error = VersionMismatchError(f"session '{session}' has prepared version "
                                         f"{status.target_version}, not {to}; nothing is written")
        self._ranks.agree(error, "applying")

    def update(self, to: int | None = None) -> dict:
        """Prepares and applies in one go."""
        target = self._target(to)
        receiver = self._opened()
        if receiver.status.version != target:
            self._give_up_other("")
            receiver.update(to=target)
        return self.status()

    def take(self, action: str, to: int | None = None, session: str = "") -> dict:
        """Carries out "prepare", "apply", "update" or "abort"; the status, in which "target" is the
        version that was meant."""
        check_action(action, to, session)
        if action == "prepare":
            target = self.prepare(to, session)
            return {**self.status(), "target": target}
        if action == "apply":
            return self.apply(to, session)
        if action == "update":
            return self.update(to)
        self.abort(session)
        return self.status()

    def abort(self, session: str) -> None:
        """Gives up what was prepared."""
        self._opened().abort(session)

    def close(self) -> None:
        """Lets go of the weights, which stay as they are."""
        receiver, self._receiver, self._bound = self._receiver, None, None
        if receiver is not None:
            receiver.close()

    def _opened(self) -> Receiver:
        if self._receiver is None:
            raise UnavailableError("the engine's weights are not bound: open() comes first")
        return self._receiver

    def _target(self, to: int | None) -> int:
        """Which version; without one rank 0 looks for the newest, so that all take the same."""
        error, target = None, to
        try:
            self._check_moved()
            if to is None and self._ranks.rank == 0:
                versions = self._opened().versions()
                target = max(versions, default=self.version)
        except Exception as failure:  # Raised again, once the other ranks know.
            error = failure
        self._ranks.agree(error, "an update")
        return self._ranks.from_first(target) if to is None else to

    def _check(self, what: str) -> None:
        error = None
        try:
            self._check_moved()
        except Exception as failure:  # Raised again, once the other ranks know.
            error = failure
        self._ranks.agree(error, what)

    def _check_moved(self) -> None:
        """Bytes that the engine no longer computes with would pass every proof."""
        moved = self._bound.moved(self._model) if self._bound else []
        if moved:
            raise InvalidArgumentError(
                f"the engine has moved or replaced {len(moved)} parameter(s) since they were "
                f"bound, as it does when it loads weights itself: {moved[:8]}; open a new receiver")


def check_action(action: str, to: int | None, session: str) -> None:
    """InvalidArgumentError (a ValueError) for what says nothing that a receiver could do."""
    if action not in ACTIONS:
        raise InvalidArgumentError(f"the action '{action}' is none of {', '.join(ACTIONS)}")
    if to is not None and (isinstance(to, bool) or not isinstance(to, int) or
                           not 0 <= to < 1 << 64):
        raise InvalidArgumentError(f"{to!r} is no version's number")
    if action == "apply" and to is None:
        raise InvalidArgumentError("apply needs the number of the version that was prepared")
    if action == "abort" and not session:
        raise InvalidArgumentError("abort needs the session that was prepared")


def _suspects(plan: bindings.BindingPlan) -> tuple[list[str], str]:
    """Tensors that are not where the plan has them, or why that cannot be said."""
    try:
        names = bindings.differing(plan)
    except Exception as failure:  # The ranks go on together, or none does.
        return [], f"which tensors they are cannot be told: {failure}"
    parts = {part.name for part in plan.parts}
    if 2 * len(names) > len(parts):
        return [], (f"{len(names)} of {len(parts)} tensors differ from those of the checkpoint: "
                    "the engine holds another model, or a version that is not in the store")
    return names, ""


def _session(version: int) -> str:
    return f"segue-{version}"
