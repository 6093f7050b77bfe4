# SPDX-License-Identifier: Apache-2.0
"""SGLang: a plugin and a custom weight loader for its schedulers, and control over its HTTP.

What reaches a scheduler is a command, not weights: an empty tensor whose *name* is "segue:" and a
JSON object. Two ways lead to it, both by `/update_weights_from_tensor` with the load format LOADER:

- The plugin (`register`, entry point group sglang.srt.plugins) answers such a request itself. It
  needs no weight-update session, so that weights which the engine has packed are not unpacked and
  packed again around it; refusals are answers, and flush and version label follow a success.
- `--custom-weight-loader segue.adapters.sglang.load` without the plugin. Its result is not looked
  at, so that a refusal can only be raised, which ends a scheduler of sglang 0.5.23.

With the options of a draft a command moves the draft worker's model with the target's, or neither.
It is sent once, to the scheduler (selector "target" or "all"), which finds both; a loader sees one
model alone, so that this needs the plugin.

Signatures are those of sglang 0.5.23. Without sglang this module imports, and what needs it says
so.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from .. import InvalidArgumentError, UnavailableError, UnsupportedError
from .bindings import Topology
from .engine import EngineOptions, EngineReceiver, check_action
from .ranks import Ranks, torch_ranks

logger = logging.getLogger(__name__)

LOADER = "segue.adapters.sglang.load"
PREFIX = "segue:"
OTHERS = ("open", "status", "close")  # Beside what receivers do.
WRITING = ("apply", "update")  # After these the engine's caches are of other weights.
HOOKED = ("sglang.srt.managers.scheduler_components.weight_updater."
          "SchedulerWeightUpdaterManager.update_weights_from_tensor")

_receivers: weakref.WeakKeyDictionary[Any, EngineReceiver] = weakref.WeakKeyDictionary()


@dataclasses.dataclass
class Command:
    """One command. `open` comes first, with `options` (fields of EngineOptions): it proves which
    version the weights are. `prepare` begins to stage version `to` (by default the newest), `apply`
    writes it, `update` does both."""

    action: str
    to: int | None = None
    session: str = ""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.action not in OTHERS:
            check_action(self.action, self.to, self.session)

    def name(self) -> str:
        """The name of the tensor that carries it."""
        return PREFIX + json.dumps(dataclasses.asdict(self))


def parse_commands(named_tensors: Iterable[tuple[str, Any]]) -> list[Command]:
    """The commands in a request. InvalidArgumentError for anything else: weights do not come
    this way."""
    commands = []
    for name, _ in named_tensors:
        if not name.startswith(PREFIX):
            raise InvalidArgumentError(
                f"'{name}' is no command: {LOADER} takes weights from a store, not from requests")
        try:
            commands.append(Command(**json.loads(name[len(PREFIX):])))
        except (ValueError, TypeError) as error:
            raise InvalidArgumentError(f"'{name}' is no command: {error}") from error
    if not commands:
        raise InvalidArgumentError("the request holds no command")
    return commands


def load(model: Any, named_tensors: Iterable[tuple[str, Any]]) -> None:
    """The custom weight loader: carries out commands on one rank's model; raises what fails."""
    for command in parse_commands(named_tensors):
        run(Started(model), command)


@dataclasses.dataclass
class Started:
    """A scheduler's model and the directory that it was started from, if it is known; the model
    runners of its draft worker."""

    model: Any
    checkpoint: str = ""
    drafts: Sequence[Any] = ()


def run(started: Started, command: Command) -> dict:
    """Carries out one command; every rank runs the same. Returns the receiver's status."""
    model = started.model
    receiver = _receivers.get(model)
    if command.action == "open":
        receiver = _open(started, command, receiver)
    elif command.action in ("status", "close") and receiver is None:
        return {"state": "CLOSED", "ready": False}
    elif receiver is None:
        raise UnavailableError("the engine's weights are not bound: open comes first")
    elif command.options:
        raise InvalidArgumentError(f"options are for open, not for {command.action}")
    if command.action == "close":
        _receivers.pop(model).close()
    if command.action in OTHERS:
        return receiver.status()
    return receiver.take(command.action, command.to, command.session)


def _open(started: Started, command: Command, known: EngineReceiver | None) -> EngineReceiver:
    """Binds the model; the same call again changes nothing, one with other options is refused."""
    options = EngineOptions(**command.options)
    if known is not None:
        draft = known.options.draft
        if options.completed(known.options.checkpoint,
                             draft.checkpoint if draft else "") != known.options:
            raise InvalidArgumentError("the weights are bound with other options: close first")
        return known
    topology, ranks = _place(options.ranks_timeout_s)
    error = draft = None
    try:
        draft = _draft_for(options, started.drafts)
        options = options.completed(started.checkpoint or _started_from(started.model),
                                    draft.checkpoint if draft else "")
    except Exception as failure:  # Raised again, once the other ranks know.
        error = failure
    ranks.agree(error, "opening the store")
    receiver = EngineReceiver(started.model, options, ranks, topology,
                              draft_model=draft.model if draft else None)
    version = receiver.open()
    logger.info("segue: rank %d of %d holds version %d of '%s'", ranks.rank, ranks.size, version,
                options.lineage)
    _receivers[started.model] = receiver
    return receiver


def _draft_for(options: EngineOptions, drafts: Sequence[Any]) -> Started | None:
    """The draft worker's model, if options name a lineage of it."""
    if options.draft is None:
        return None
    if len(drafts) != 1:
        raise UnsupportedError(
            f"lineage '{options.draft.lineage}' is of one draft model, and this scheduler has "
            f"{len(drafts)} that the plugin can reach")
    return _of_runner(drafts[0])


def _started_from(model: Any) -> str:
    """The path that the model's configuration was read from, as transformers notes it."""
    return str(getattr(getattr(model, "config", None), "_name_or_path", ""))


def _place(timeout_s: float) -> tuple[Topology, Ranks]:
    """This scheduler's place among the tensor-parallel ranks, which hold one model together."""
    try:
        from sglang.srt.runtime_context import get_parallel
    except ImportError as error:
        raise UnsupportedError("SGLang's ranks are not there (sglang.srt.runtime_context of sglang "
                               f"0.5.23): {error}") from error
    parallel = get_parallel()
    for name, what in (("pp_size", "pipeline-parallel"), ("attn_cp_size", "context-parallel"),
                       ("moe_dp_size", "data-parallel experts in")):
        if getattr(parallel, name, 1) > 1:
            raise UnsupportedError(f"{what} engines cannot be bound yet ({name} is "
                                   f"{getattr(parallel, name)})")
    if parallel.tp_size == 1:
        return Topology(), Ranks()
    return (Topology(parallel.tp_rank, parallel.tp_size, parallel.attn_tp_size),
            torch_ranks(parallel.tp_group.cpu_group, timeout_s))


def register() -> None:
    """The plugin: has SGLang call `answer` around its own update_weights_from_tensor."""
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    except ImportError as error:
        raise UnsupportedError(
            f"SGLang's plugins are not there (sglang 0.5.23): {error}") from error
    HookRegistry.register(HOOKED, answer, HookType.AROUND)


def answer(original, manager, recv_req):
    """Stands around SchedulerWeightUpdaterManager.update_weights_from_tensor on every rank. What is
    not for us goes on to `original`."""
    if recv_req.load_format != LOADER:
        return original(manager, recv_req)
    import torch
    from sglang.srt.managers.io_struct import UpdateWeightsFromTensorReqOutput

    success, message = True, ""
    try:
        commands = parse_commands(
            manager.tp_worker.deserialize_own_rank(recv_req.serialized_named_tensors))
        started = _started(manager, recv_req.selector)
        for command in commands:
            message = PREFIX + json.dumps(run(started, command))
        if any(command.action in WRITING for command in commands):
            manager.record_weight_version_after_update(recv_req.weight_version)
            success, message = manager.flush_cache_after_weight_update(recv_req, True, message)
    except Exception as error:  # The scheduler lives on; all ranks failed alike.
        success, message = False, f"{PREFIX} {type(error).__name__}: {error}"
        logger.error(message)
    torch.distributed.barrier(group=manager.tp_cpu_group)
    return UpdateWeightsFromTensorReqOutput(success=success, message=message)


def _started(manager, selector: str) -> Started:
    """What a scheduler holds: of "draft" alone nothing is moved."""
    if selector == "draft":
        raise InvalidArgumentError("a draft moves with its policy: commands go to the target")
    ((_, target),) = manager._select_runners("target")
    drafts = [runner for _, runner in manager._select_runners("draft")]
    return dataclasses.replace(_of_runner(target), drafts=drafts)


def _of_runner(runner) -> Started:
    """UnsupportedError where SGLang itself takes no new weights: what it has derived from them
    would stay as it is."""
    from sglang.srt.model_executor.model_runner_components import weight_updater

    updater = runner.weight_updater
    updater._assert_weight_cache_inactive("update_weights_from_tensor")
    model = updater.get_model()
    why = weight_updater._unsupported_derived_weight_cache_error(model)
    if why is not None:
        raise UnsupportedError(why)
    return Started(model, str(updater.model_config.model_path))
