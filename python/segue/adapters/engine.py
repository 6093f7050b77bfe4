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
from collections.abc import Sequence

from .. import (Error, InvalidArgumentError, Receiver, ReceiverGroup, UnavailableError,
                UnsupportedError, VersionMismatchError)
from .._core import ReceiverStatus
from . import bindings
from .options import EngineOptions
from .ranks import Ranks

__all__ = ["EngineOptions", "EngineReceiver", "check_action"]

ACTIONS = ("prepare", "apply", "update", "abort")


@dataclasses.dataclass
class _Side:
    """One lineage of an engine: its model, where its weights come from, and how they are bound.
    `distrusted`: tensors that are not where the table has them; `doubted`: those of any rank."""

    model: object
    options: EngineOptions
    distrusted: Sequence[str] = ()
    doubted: Sequence[str] = ()
    plan: bindings.BindingPlan | None = None
    bound: bindings.Shadows | None = None


class EngineReceiver:
    """The receiver of one rank's parameters. `model`: a torch module, or a mapping from names to
    tensors; `topology`: this rank's place. `draft_model`: the same of a model that drafts for it,
    whose lineage `options.draft` names: both move to the same version together, or neither. Where
    that is the policy's lineage, both are modules."""

    def __init__(self, model: object, options: EngineOptions, ranks: Ranks | None = None,
                 topology: bindings.Topology | None = None, *, draft_model: object = None):
        if (draft_model is None) != (options.draft is None):
            raise InvalidArgumentError("a draft model and the options of a draft go together: "
                                       "draft_model=, and draft of EngineOptions")
        self.options, self.draft_model = options, draft_model
        self._sides = [_Side(model, options)]
        if self._is_joined:
            both = bindings.Joined(model, draft_model, options.checkpoint)
            self._sides = [_Side(both, dataclasses.replace(
                options, static=[*options.static, *options.draft.static]))]
        elif options.draft is not None:
            self._sides.append(_Side(draft_model, options.draft))
        self._ranks = ranks or Ranks()
        self._topology = topology or bindings.Topology(self._ranks.rank, self._ranks.size)
        self._receiver: Receiver | ReceiverGroup | None = None

    @property
    def _is_joined(self) -> bool:
        """Whether the draft is out of its policy's checkpoint: one lineage holds both."""
        draft = self.options.draft
        return draft is not None and draft.lineage == self.options.lineage

    @property
    def probed(self) -> list[str]:
        """Tensors that were placed by their bytes."""
        return [name for side in self._sides if side.plan for name in side.plan.probed]

    def open(self) -> int:
        """Binds the weights and proves which version they are, which it returns; nothing is
        written. On any failure, at any rank, nothing is bound at all ranks."""
        if self._receiver is not None:
            return self.version
        self._receiver = self._bind_and_prove()
        return self.version

    def _bind_and_prove(self) -> Receiver | ReceiverGroup:
        for side in self._sides:
            side.distrusted = side.doubted = ()
        receiver = self._bind()
        error = self._prove(receiver)
        if error is None:
            return receiver
        if not self._ranks.all(isinstance(error, VersionMismatchError)):
            raise error
        receiver, again = self._bind_suspects(error)
        failed = self._prove(receiver)
        if failed is not None:
            raise failed from again
        return receiver

    def _bind_suspects(self, error: Exception) -> tuple[Receiver | ReceiverGroup, Exception]:
        """Under the tables' views the weights are no version. Where they are the checkpoint's but
        for some tensors, these are looked for by their bytes."""
        note = ""
        for side in self._sides:
            side.distrusted, why = _suspects(side.plan)
            note = note or why
        if not self._ranks.all(not note):
            raise VersionMismatchError(f"{error}; {note or 'see the other ranks'}") from error
        if self._ranks.all(not any(side.distrusted for side in self._sides)):
            checkpoints = "' and '".join(side.options.checkpoint for side in self._sides)
            raise VersionMismatchError(f"{error}; they are those of the checkpoint "
                                       f"'{checkpoints}'") from error
        for side in self._sides:
            side.doubted = self._of_all_ranks(side)
        try:
            return self._bind(), error
        except UnsupportedError as unknown:
            raise VersionMismatchError(f"{error}; {unknown}") from error

    def _of_all_ranks(self, side: _Side) -> list[str]:
        """Tensors of the checkpoint that any rank distrusts."""
        known = sorted(bindings.Checkpoint(side.options.checkpoint).tensors)
        chosen = set(side.distrusted)
        flags = self._ranks.any([name in chosen for name in known])
        return [name for name, flag in zip(known, flags, strict=True) if flag]

    def _bind(self) -> Receiver | ReceiverGroup:
        receivers, parts, error = [], [], None
        try:
            for side in self._sides:
                receivers.append(self._make(side.options))
                side.plan = bindings.plan_bindings(
                    bindings.Checkpoint(side.options.checkpoint), side.model, self._topology,
                    static=side.options.static, probe=side.options.probe,
                    distrusted=side.distrusted, doubted=side.doubted, beside=parts)
                side.bound = bindings.bind_plan(receivers[-1], side.plan, side.model)
                parts += side.plan.parts
            if len(receivers) > 1:
                receivers = [ReceiverGroup(receivers, same_version=True)]
        except Exception as failure:  # Raised again, once the other ranks know.
            error = failure
        self._ranks.agree(error, "binding the weights")
        return receivers[0]

    def _prove(self, receiver: Receiver | ReceiverGroup) -> Exception | None:
        """Opens the receivers, which all do or none; why not, if they do not."""
        try:
            receiver.open()
        except Exception as error:  # Of which kind it was, the other ranks are asked.
            receiver.close()
            return error
        return None

    def _make(self, options: EngineOptions) -> Receiver:
        if not options.store or not options.lineage:
            raise InvalidArgumentError(
                "options name a store and a lineage, or come from EngineOptions(...).completed(), "
                "which takes what is left out from the environment")
        several = {}
        if self._ranks.size > 1:
            several = {"rank": self._ranks.rank, "ranks": self._ranks.size,
                       "sum_over_ranks": self._ranks.receiver_words}
        return Receiver(options.store, lineage=options.lineage, checkpoint=options.checkpoint,
                        staging=options.staging or None, threads=options.threads,
                        gate_timeout=options.gate_timeout_s,
                        public_keys=tuple(options.public_keys),
                        scrub_rate=options.scrub_rate, decoder=options.decoder or None,
                        device_memory=options.device_memory, keep_slots=options.keep_slots,
                        **several)

    @property
    def version(self) -> int:
        """The version that the weights are."""
        return self._statuses()[0].version

    def _statuses(self) -> list[ReceiverStatus]:
        """Of each lineage, the engine's own first; state and session are those of all."""
        status = self._opened().status
        if len(self._sides) == 1:
            return [status]
        return [status[side.options.lineage] for side in self._sides]

    def status(self) -> dict:
        """State, version and message of this rank, for the engine's own interfaces. With a draft
        model "draft" has its lineage, version and digest."""
        if self._receiver is None:
            return {"state": "CLOSED", "ready": False, "rank": self._ranks.rank}
        status, *drafts = self._statuses()
        if self._is_joined:
            drafts = [status]
        told = {"state": status.state, "ready": status.ready, "version": status.version,
                "target": status.target_version, "lineage": status.lineage,
                "digest": status.digest, "message": status.message, "session": status.session,
                "rank": self._ranks.rank, "probed": self.probed}
        for draft in drafts:
            told["ready"] = told["ready"] and draft.ready
            told["draft"] = {"lineage": draft.lineage, "version": draft.version,
                             "digest": draft.digest, "ready": draft.ready}
        return told

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
        receiver, status = self._opened(), self._statuses()[0]
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
        if not self._holds(to):
            receiver.wait_prepared()
            self._check_prepared(to, session)
            receiver.apply(session)
        if self._statuses()[0].state == "APPLIED":
            receiver.resume(session)
        return self.status()

    def _check_prepared(self, to: int, session: str) -> None:
        """A session's name says nothing of what it holds."""
        error = None
        for status in self._statuses():
            if status.state == "PREPARED" and status.session == session and (
                    status.target_version != to):
                error = VersionMismatchError(
                    f"session '{session}' has prepared version {status.target_version} of "
                    f"'{status.lineage}', not {to}; nothing is written")
        self._ranks.agree(error, "applying")

    def update(self, to: int | None = None) -> dict:
        """Prepares and applies in one go."""
        target = self._target(to)
        receiver = self._opened()
        if not self._holds(target):
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
        receiver, self._receiver = self._receiver, None
        for side in self._sides:
            side.bound = side.plan = None
        if receiver is not None:
            receiver.close()

    def _holds(self, version: int) -> bool:
        return all(status.version == version for status in self._statuses())

    def _opened(self) -> Receiver | ReceiverGroup:
        if self._receiver is None:
            raise UnavailableError("the engine's weights are not bound: open() comes first")
        return self._receiver

    def _target(self, to: int | None) -> int:
        """Which version; without one rank 0 looks for the newest, so that all take the same."""
        error, target = None, to
        try:
            self._check_moved()
            if to is None and self._ranks.rank == 0:
                target = self._newest()
        except Exception as failure:  # Raised again, once the other ranks know.
            error = failure
        self._ranks.agree(error, "an update")
        return self._ranks.from_first(target) if to is None else to

    def _newest(self) -> int:
        """The highest number that all lineages offer; the version that is held without any."""
        offered = self._opened().versions()
        if len(self._sides) > 1:
            offered = set.intersection(*map(set, offered.values()))
        return max(offered, default=self.version)

    def _check(self, what: str) -> None:
        error = None
        try:
            self._check_moved()
        except Exception as failure:  # Raised again, once the other ranks know.
            error = failure
        self._ranks.agree(error, what)

    def _check_moved(self) -> None:
        """Bytes that the engine no longer computes with would pass every proof."""
        moved = [name for side in self._sides if side.bound
                 for name in side.bound.moved(side.model)]
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
