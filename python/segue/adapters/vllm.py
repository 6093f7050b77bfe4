# SPDX-License-Identifier: Apache-2.0
"""vLLM: versions of Segue as a weight transfer backend, `--weight-transfer-config
'{"backend": "segue"}'`.

`register` is the entry point (group vllm.general_plugins) that makes the backend known. A worker's
engine binds the model's parameters once and takes versions from the store; nothing is sent over the
control plane but numbers. `WorkerExtension` does the same for releases without weight transfer, by
`--worker-extension-cls segue.adapters.vllm.WorkerExtension` and `collective_rpc`. Signatures are
those of vllm 0.33.0. Without vllm this module imports, and what needs it says so.

A model that drafts (speculative decoding) moves with the engine's own where the options name its
lineage. The extension asks the worker for it. vLLM gives a weight transfer engine no way to ask,
and hands it over when a session of `/start_draft_weight_update` begins: binding waits for that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from .. import InvalidArgumentError, Publisher, UnavailableError, UnsupportedError
from .bindings import Topology
from .engine import EngineOptions, EngineReceiver, check_action
from .ranks import Ranks, torch_ranks

BACKEND = "segue"

try:
    from vllm.distributed.weight_transfer.base import (
        TrainerInitInfo, TrainerWeightTransferEngine, WeightTransferEngine, WeightTransferInitInfo,
        WeightTransferUpdateInfo)
    MISSING: Exception | None = None
except ImportError as _error:
    MISSING = _error

    class _Absent:
        """Stands where vLLM's classes would."""

        def __class_getitem__(cls, _):
            return cls

        def __init__(self, *_args, **_kwargs):
            _need_vllm()

    WeightTransferEngine = TrainerWeightTransferEngine = _Absent
    WeightTransferInitInfo = WeightTransferUpdateInfo = TrainerInitInfo = object


def _need_vllm() -> None:
    if MISSING is not None:
        raise UnsupportedError(
            "vLLM's weight transfer is not there (vllm.distributed.weight_transfer.base of vllm "
            f"0.33 or newer): {MISSING}. For older releases use "
            "segue.adapters.vllm.WorkerExtension") from MISSING


def register() -> None:
    """Makes the backend known to vLLM; may be called many times, as plugins are."""
    try:
        from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    except ImportError:
        return  # A release without weight transfer: there is nothing to be known to.
    _register(WeightTransferEngineFactory, "SegueWeightTransferEngine")
    try:
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
    except ImportError:
        return
    _register(WeightTransferTrainerFactory, "SegueTrainerWeightTransferEngine")


def _register(factory, name: str) -> None:
    if BACKEND not in factory._registry:
        factory.register_engine(BACKEND, __name__, name)


@dataclasses.dataclass
class SegueInitInfo(EngineOptions, WeightTransferInitInfo):
    """What `init_weight_transfer_engine` takes: the fields of EngineOptions."""


@dataclasses.dataclass
class SegueUpdateInfo(WeightTransferUpdateInfo):
    """What `update_weights` takes. `prepare` begins to stage `version` and returns, `apply` writes
    it, `update` does both; `version` None is the newest (not for `apply`)."""

    version: int | None = None
    action: str = "update"
    session: str = ""

    def __post_init__(self):
        check_action(self.action, self.version, self.session)


class SegueWeightTransferEngine(WeightTransferEngine[SegueInitInfo, SegueUpdateInfo]):
    """The engine of one worker. Whichever session an update comes in, it moves the draft model with
    the engine's own, or neither."""

    init_info_cls = SegueInitInfo
    update_info_cls = SegueUpdateInfo
    supports_draft_weight_update = True

    def __init__(self, config, vllm_config, device, model) -> None:
        super().__init__(config, vllm_config, device, model)
        self._policy, self._draft = model, None
        self._asked: SegueInitInfo | None = None
        self._receiver: EngineReceiver | None = None

    def init_transfer_engine(self, init_info: SegueInitInfo) -> None:
        """Binds the model and proves which version it is; the same call again changes nothing,
        unless vLLM has replaced the draft model. With a draft's options that waits for its model,
        which the first draft session brings."""
        if self._receiver is not None:
            if self._holds_draft() and (
                    self._receiver.options == _options(init_info, self.vllm_config)):
                return
            self._close()
        self._asked = init_info
        if init_info.draft is None or self._draft is not None:
            self._bind()

    def _bind(self) -> None:
        draft = self._draft if self._asked.draft is not None else None
        self._receiver = _open(self._policy, self._asked, self.vllm_config, draft)

    def set_weight_update_target(self, model, model_config) -> None:
        """vLLM's worker hands over the draft model, as a draft session begins."""
        super().set_weight_update_target(model, model_config)
        self._draft = model

    def start_weight_update(self) -> None:
        """Binds what waited for the draft model. Nothing else is to prepare: weights are written in
        place, not loaded."""
        if self._receiver is None and self._asked is not None and self._draft is not None:
            self._bind()
        bound = self._opened().draft_model
        if self.model is not self._policy and bound is None:
            raise InvalidArgumentError("this session is of a draft model that is not bound: "
                                       "init_info names no lineage of it")
        if not self._holds_draft():
            raise InvalidArgumentError(
                "vLLM has replaced the draft model since it was bound: init_weight_transfer_engine "
                "binds it anew")

    def _holds_draft(self) -> bool:
        """Whether what is bound is the draft model that vLLM has handed over last, if any."""
        return self._receiver.draft_model in (None, self._draft)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """As the base class does, without waiting for a device: the bytes are written when this
        returns."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: SegueUpdateInfo) -> None:
        """Takes a version; on failure the weights are the old version, proven."""
        self._opened().take(update_info.action, update_info.version, update_info.session)

    def finish_weight_update(self) -> None:
        """Nothing is left to do."""
        self._opened()

    def shutdown(self) -> None:
        """Lets go of the weights, which stay as they are."""
        self._asked = self._draft = None
        self._close()

    def _close(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()

    @staticmethod
    def trainer_send_weights(iterator: Iterable[tuple[str, Any]],
                             trainer_args: dict[str, Any]) -> None:
        """For releases whose trainers call this: publishes one version. `trainer_args`: either
        {"publisher": a segue.Publisher} or what makes one for this call (store, base, ...), and
        optionally "step"."""
        arguments = dict(trainer_args)
        step = arguments.pop("step", None)
        publisher = arguments.pop("publisher", None)
        if publisher is None:
            publisher = Publisher(arguments.pop("store"), **arguments)
        elif arguments:
            raise InvalidArgumentError(f"beside a publisher, {sorted(arguments)} say nothing")
        publish_one_by_one(publisher, iterator, step)

    def _opened(self) -> EngineReceiver:
        if self._receiver is None:
            raise UnavailableError(self._why_not_bound())
        return self._receiver

    def _why_not_bound(self) -> str:
        if self._asked is None:
            return "init_weight_transfer_engine has not been called"
        if self._asked.draft is None or self._draft is not None:
            return "nothing is bound: init_weight_transfer_engine has failed; call it again"
        return ("nothing is bound yet: vLLM hands the draft model over in a session of "
                "start_draft_weight_update and finish_weight_update, which comes first")


def _options(info: EngineOptions, vllm_config) -> EngineOptions:
    fields = {f.name: getattr(info, f.name) for f in dataclasses.fields(EngineOptions)}
    draft = getattr(getattr(vllm_config, "speculative_config", None), "draft_model_config", None)
    return EngineOptions(**fields).completed(str(vllm_config.model_config.model),
                                             str(getattr(draft, "model", "")))


def _open(model, info: EngineOptions, vllm_config, draft_model=None) -> EngineReceiver:
    topology, ranks = _place(vllm_config.parallel_config, info.ranks_timeout_s)
    error = options = None
    try:
        options = _options(info, vllm_config)
        if options.draft is not None and draft_model is None:
            raise UnsupportedError(f"lineage '{options.draft.lineage}' is of a draft, and this "
                                   "engine has no draft model")
    except Exception as failure:  # Raised again, once the other ranks know.
        error = failure
    ranks.agree(error, "binding the weights")
    receiver = EngineReceiver(model, options, ranks, topology, draft_model=draft_model)
    receiver.open()
    return receiver


def _draft_of(worker) -> Any:
    """A worker's draft model, None without one. Before `get_draft_model` it is where the model
    runner keeps it, under what captures graphs of it."""
    if hasattr(worker, "get_draft_model"):
        return worker.get_draft_model()
    runner = worker.model_runner
    for name in ("drafter", "speculator"):
        model = getattr(getattr(runner, name, None), "model", None)
        if model is not None:
            return model.unwrap() if hasattr(model, "unwrap") else model
    return None


def _place(parallel, timeout_s: float) -> tuple[Topology, Ranks]:
    """This worker's place among the tensor-parallel ranks, which hold one model together."""
    if getattr(parallel, "pipeline_parallel_size", 1) > 1:
        raise UnsupportedError("pipeline-parallel engines cannot be bound yet")
    if getattr(parallel, "enable_expert_parallel", False) and (
            getattr(parallel, "data_parallel_size", 1) > 1):
        raise UnsupportedError("experts that are shared out among data-parallel engines cannot be "
                               "bound yet")
    if getattr(parallel, "enable_eplb", False):
        raise UnsupportedError("an expert load balancer moves experts between ranks while they are "
                               "bound; switch it off (enable_eplb)")
    if getattr(parallel, "tensor_parallel_size", 1) == 1:
        return Topology(), Ranks()
    from vllm.distributed.parallel_state import get_tp_group

    group = get_tp_group()
    return (Topology(group.rank_in_group, group.world_size),
            torch_ranks(group.cpu_group, timeout_s))


class WorkerExtension:
    """For `--worker-extension-cls`: methods that `collective_rpc` calls on every worker. They also
    tell what the weight transfer interface has no words for: the state of a prepare."""

    def segue_open(self, **options) -> dict:
        """Binds the model, and with the options of a draft its draft model too; the fields of
        EngineOptions."""
        if getattr(self, "_segue_receiver", None) is None:
            info = EngineOptions(**options)
            draft = None if info.draft is None else _draft_of(self)
            self._segue_receiver = _open(self.model_runner.get_model(), info, self.vllm_config,
                                         draft)
        return self._segue_receiver.status()

    def segue_update(self, version: int | None = None, action: str = "update",
                     session: str = "") -> dict:
        """Takes a version as SegueUpdateInfo says; the receiver's status, in which "target" is
        the version that was meant."""
        return self._segue_opened().take(action, version, session)

    def segue_status(self) -> dict:
        """State and version of this worker's receiver."""
        receiver = getattr(self, "_segue_receiver", None) or getattr(
            getattr(self, "weight_transfer_engine", None), "_receiver", None)
        return receiver.status() if receiver else {"state": "CLOSED", "ready": False}

    def segue_close(self) -> None:
        """Lets go of the weights."""
        receiver, self._segue_receiver = getattr(self, "_segue_receiver", None), None
        if receiver is not None:
            receiver.close()

    def _segue_opened(self) -> EngineReceiver:
        receiver = getattr(self, "_segue_receiver", None)
        if receiver is None:
            raise UnavailableError("segue_open has not been called")
        return receiver


def publish_one_by_one(publisher: Publisher, pairs: Iterable[tuple[str, Any]],
                       step: int | None = None) -> int:
    """Publishes tensors as they are gathered, each of them brought to the CPU and let go again
    before the next one; the version's number. Where one fails, nothing is published."""
    publisher.begin(step)
    try:
        for name, tensor in pairs:
            publisher.put(name, tensor.detach().cpu().contiguous())
        return publisher.commit().target_version
    except BaseException:
        publisher.discard()
        raise


@dataclasses.dataclass
class SegueTrainerInitInfo(TrainerInitInfo):
    """What the trainer's side is made from. `base`: directory of the checkpoint that trainer and
    engines start from. `engine`: fields of EngineOptions that differ from these for the engines.
    `publisher`: further arguments of segue.Publisher.

    `draft_source`, `draft`: the weights of a draft model that is trained too, and its `lineage`,
    `base` and further arguments of its publisher; each send publishes both under one number. A
    draft out of the policy's checkpoint is published with it, and has its options in `engine`
    alone.
    """

    backend: ClassVar[str] = BACKEND

    store: str = ""
    base: str = ""
    lineage: str = "default"
    engine: dict[str, Any] = dataclasses.field(default_factory=dict)
    publisher: dict[str, Any] = dataclasses.field(default_factory=dict)
    draft: dict[str, Any] = dataclasses.field(default_factory=dict)
    draft_source: Any = None
    if MISSING is not None:
        rank: int = dataclasses.field(default=0, kw_only=True)


class SegueTrainerWeightTransferEngine(TrainerWeightTransferEngine[SegueTrainerInitInfo]):
    """The trainer's side: publishes the source's tensors and tells the engines which version to
    take. Three calls may be set: `staged(version)` waits until the engines have staged it (without
    it they are told to apply at once, and stage within that), `before_apply` pauses them,
    `after_apply` resets caches and lets them go on."""

    init_info_cls = SegueTrainerInitInfo
    staged: Callable[[int], None] | None = None
    before_apply: Callable[[], None] | None = None
    after_apply: Callable[[], None] | None = None

    def __init__(self, *, client, source=None, is_sender=True, rank=0, publisher=None,
                 draft_source=None, draft_publisher=None) -> None:
        super().__init__(client=client, source=source, is_sender=is_sender, rank=rank)
        self.publisher = publisher
        self.draft_source, self.draft_publisher = draft_source, draft_publisher

    @classmethod
    def trainer_init(cls, init_info: SegueTrainerInitInfo, *, client,
                     source=None) -> SegueTrainerWeightTransferEngine:
        """Opens the publisher and has the engines bind their weights. Only rank 0 does either."""
        if source is None:
            raise InvalidArgumentError("segue needs a source of weights")
        _check_draft(init_info)
        sender, publisher, draft_publisher = init_info.rank == 0, None, None
        if sender:
            engine = _engine_of(init_info)
            if engine.get("draft"):
                _check_hands_over(client)
            publisher = Publisher(init_info.store, lineage=init_info.lineage, base=init_info.base,
                                  **init_info.publisher)
            if init_info.draft:
                draft_publisher = Publisher(**{"store": init_info.store, **init_info.draft})
            client.init_weight_transfer_engine(engine)
            if engine.get("draft"):
                client.start_draft_weight_update()
                client.finish_weight_update()
        return cls(client=client, source=source, is_sender=sender, rank=init_info.rank,
                   publisher=publisher, draft_source=init_info.draft_source,
                   draft_publisher=draft_publisher)

    def send_weights(self) -> None:
        """Publishes one version, of the draft too where there is one, and brings all engines to it.
        Every rank calls it, since the sources may gather from all."""
        sources = [self.source] if self.draft_source is None else [self.source, self.draft_source]
        if not self.is_sender:
            for source in sources:
                for _ in source.iter_full():
                    pass
            return
        version = publish_one_by_one(self.publisher, self.source.iter_full())
        if self.draft_source is not None:
            publish_one_by_one(self.draft_publisher, self.draft_source.iter_full(), version)
        self.client.start_weight_update()
        self.client.update_weights({"action": "prepare", "version": version})
        if self.staged is not None:
            self.staged(version)
        if self.before_apply is not None:
            self.before_apply()
        self.client.update_weights({"action": "apply", "version": version})
        self.client.finish_weight_update(str(version))
        if self.after_apply is not None:
            self.after_apply()


def _check_draft(info: SegueTrainerInitInfo) -> None:
    """A draft that is published is of a lineage of its own."""
    if bool(info.draft) != (info.draft_source is not None):
        raise InvalidArgumentError("draft and draft_source go together")
    if not info.draft:
        return
    if not info.draft.get("lineage"):
        raise InvalidArgumentError("draft names the lineage that the draft model is published in")
    if (info.draft.get("store", info.store), info.draft["lineage"]) == (info.store, info.lineage):
        raise InvalidArgumentError(
            f"'{info.lineage}' is the policy's lineage, and not a draft's that is published beside "
            "it; a draft out of the policy's checkpoint is published with it: name the lineage in "
            "engine={'draft': ...}, without draft and draft_source")


def _engine_of(info: SegueTrainerInitInfo) -> dict[str, Any]:
    """Options for the engines."""
    engine = {"store": info.store, "lineage": info.lineage, **info.engine}
    if info.draft:
        engine["draft"] = {"lineage": info.draft["lineage"], **(engine.get("draft") or {})}
    return engine


def _check_hands_over(client) -> None:
    """The protocol of vLLM's clients does not name this call, which its LLM and server have."""
    if not callable(getattr(client, "start_draft_weight_update", None)):
        raise InvalidArgumentError("a draft model needs a client with start_draft_weight_update(), "
                                   "by which vLLM hands it over")
