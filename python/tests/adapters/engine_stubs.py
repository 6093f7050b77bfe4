# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the parts of vllm 0.33.0 and sglang 0.5.23 that the adapters touch.

Names and parameters are those of the releases, which test_engine_signatures.py checks wherever the
real packages can be read; bodies do the least that lets the adapters run. `installed` puts them
into sys.modules.
"""

import abc
import dataclasses
import enum
import sys
import types
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

A, B = TypeVar("A"), TypeVar("B")

# --- vllm.distributed.weight_transfer.base -----------------------------------------------------


@dataclasses.dataclass
class WeightTransferInitInfo(abc.ABC):  # noqa: B024
    pass


@dataclasses.dataclass
class WeightTransferUpdateInfo(abc.ABC):  # noqa: B024
    pass


@dataclasses.dataclass
class TrainerInitInfo:
    backend: ClassVar[str]

    rank: int = dataclasses.field(kw_only=True)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if not getattr(cls, "backend", None):
            raise TypeError(f"{cls.__name__} has no backend")

    @property
    def is_sender(self):
        return self.rank == 0


class WeightTransferEngine(abc.ABC, Generic[A, B]):
    init_info_cls: type
    update_info_cls: type
    supports_draft_weight_update = True
    defers_processing = False

    def __init__(self, config, vllm_config, device, model):
        self.config, self.vllm_config = config, vllm_config
        self.parallel_config = vllm_config.parallel_config
        self.model_config = vllm_config.model_config
        self.device, self.model = device, model
        self._default_model, self._default_model_config = model, self.model_config

    def set_weight_update_target(self, model, model_config):
        self.model, self.model_config = model, model_config

    def reset_weight_update_target(self):
        self.model, self.model_config = self._default_model, self._default_model_config

    def parse_init_info(self, init_dict):
        try:
            return self.init_info_cls(**init_dict)
        except TypeError as error:
            raise ValueError(f"Invalid init_info: {error}") from error

    def parse_update_info(self, update_dict):
        try:
            return self.update_info_cls(**update_dict)
        except TypeError as error:
            raise ValueError(f"Invalid update_info: {error}") from error

    @abc.abstractmethod
    def init_transfer_engine(self, init_info):
        pass

    @abc.abstractmethod
    def start_weight_update(self):
        pass

    @abc.abstractmethod
    def finish_weight_update(self):
        pass

    def update_weights(self, update_info):
        raise AssertionError("the real one waits for an accelerator, which there may not be")

    @abc.abstractmethod
    def receive_weights(self, update_info):
        pass

    @abc.abstractmethod
    def shutdown(self):
        pass


class TrainerWeightTransferEngine(abc.ABC, Generic[A]):
    init_info_cls: type

    def __init__(self, *, client, source=None, is_sender=True, rank=0):
        self.is_sender, self.rank, self.client, self.source = is_sender, rank, client, source

    @classmethod
    @abc.abstractmethod
    def trainer_init(cls, init_info, *, client, source=None):
        pass

    @abc.abstractmethod
    def send_weights(self):
        pass

    def shutdown(self):
        pass


# --- vllm.distributed.weight_transfer.factory --------------------------------------------------


def _factory(name, methods):
    def register_engine(cls, name, module_path_or_cls, class_name=None):
        if name in cls._registry:
            raise ValueError(f"'{name}' is already registered")
        cls._registry[name] = (module_path_or_cls, class_name)

    return type(name, (), {"_registry": {}, "register_engine": classmethod(register_engine),
                           **methods})


def _resolve(entry):
    module, name = entry
    return getattr(__import__(module, fromlist=[name]), name)


def _create_engine(cls, config, vllm_config, device, model):
    return _resolve(cls._registry[config.backend])(config, vllm_config, device, model)


def _trainer_init(cls, init_info, *, client, source=None):
    return _resolve(cls._registry[init_info.backend]).trainer_init(
        init_info=init_info, client=client, source=source)


class VllmWorker:
    """vllm.v1.worker.gpu_worker.Worker, as far as weights go. `order`: what was called."""

    def __init__(self, vllm_config, model, factory, draft_model=None):
        self.vllm_config = vllm_config
        self.speculative_config = getattr(vllm_config, "speculative_config", None)
        self.model_runner = types.SimpleNamespace(get_model=lambda: model,
                                                  get_draft_model=lambda: draft_model)
        self.weight_transfer_engine = factory.create_engine(
            types.SimpleNamespace(backend="segue"), vllm_config, "cpu", model)
        self._weight_update_active = False

    def get_draft_model(self):
        return self.model_runner.get_draft_model()

    def init_weight_transfer_engine(self, init_info):
        engine = self.weight_transfer_engine
        engine.init_transfer_engine(engine.parse_init_info(init_info))

    def start_weight_update(self):
        self._start_weight_update()

    def start_draft_weight_update(self):
        self._start_weight_update(is_draft=True)

    def _start_weight_update(self, is_draft=False):
        if is_draft and not self.weight_transfer_engine.supports_draft_weight_update:
            raise RuntimeError("the engine does not support draft model weight updates")
        if self._weight_update_active:
            raise RuntimeError("start_weight_update called while a weight update is active")
        try:
            if is_draft:
                self._set_draft_weight_update_target()
            self.weight_transfer_engine.start_weight_update()
        except BaseException:
            self.weight_transfer_engine.reset_weight_update_target()
            raise
        self._weight_update_active = True

    def _set_draft_weight_update_target(self):
        if self.get_draft_model() is None:
            raise RuntimeError("Draft model weight update requested, but no draft model")
        self.weight_transfer_engine.set_weight_update_target(
            self.get_draft_model(), self.speculative_config.draft_model_config)

    def update_weights(self, update_info):
        if not self._weight_update_active:
            raise RuntimeError("start_weight_update must be called before update_weights")
        try:
            self.weight_transfer_engine.update_weights(update_info)
        except BaseException:
            self._weight_update_active = False
            self.weight_transfer_engine.reset_weight_update_target()
            raise

    def finish_weight_update(self):
        self.weight_transfer_engine.finish_weight_update()
        self.weight_transfer_engine.reset_weight_update_target()
        self._weight_update_active = False


# --- sglang ------------------------------------------------------------------------------------


class HookType(enum.Enum):
    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"
    REPLACE = "replace"


class HookRegistry:
    hooks: ClassVar[dict] = {}

    @classmethod
    def register(cls, target, hook, hook_type=HookType.AFTER, *, source=None):
        cls.hooks[target] = (hook, hook_type)


@dataclasses.dataclass(kw_only=True)
class UpdateWeightsFromTensorReqInput:
    serialized_named_tensors: list
    load_format: str | None = None
    flush_cache: bool = True
    abort_all_requests: bool = False
    weight_version: str | None = None
    selector: str = "all"
    torch_empty_cache: bool = False


@dataclasses.dataclass(kw_only=True)
class UpdateWeightsFromTensorReqOutput:
    success: bool
    message: str


class WeightUpdater:
    """Of a model runner."""

    def __init__(self, model, model_path):
        self.get_model = lambda: model
        self.model_config = types.SimpleNamespace(model_path=model_path)

    def _assert_weight_cache_inactive(self, op):
        pass

    def update_weights_from_tensor(self, named_tensors, load_format=None):
        raise AssertionError("not for a command of ours")


def _unsupported_derived_weight_cache_error(model=None):
    """Why SGLang itself takes no new weights for a model."""
    for module in model.modules():
        reason = getattr(module, "_derived_weight_cache_error", None)
        if reason is not None:
            return reason
    return None


def runner(model, model_path):
    """A model runner, as far as it is seen."""
    return types.SimpleNamespace(weight_updater=WeightUpdater(model, model_path))


class SchedulerWeightUpdaterManager:
    """Of a scheduler. `log`: what happened, in order; `flushes`: answers that a flush gives;
    `drafts`: the runners of its draft worker."""

    def __init__(self, model, model_path, group=None, drafts=()):
        self.target, self.drafts = runner(model, model_path), drafts
        self.tp_worker = self
        self.tp_cpu_group = group
        self.log, self.flushes, self.version = [], [], "default"

    def deserialize_own_rank(self, serialized_named_tensors):
        import io
        import pickle
        return pickle.Unpickler(io.BytesIO(serialized_named_tensors[0])).load()

    def _select_runners(self, selector="all"):
        runners = [("target", self.target)] if selector in ("all", "target") else []
        if selector in ("all", "draft"):
            runners += [("draft", draft) for draft in self.drafts]
        return runners

    def flush_cache_after_weight_update(self, recv_req, success, message):
        if not recv_req.flush_cache:
            return success, message
        done = self.flushes.pop(0) if self.flushes else True
        self.log.append(("flush", done))
        if not done:
            return False, ("Weights were updated, but the cache was not flushed because requests "
                           "are still running or queued.")
        return success, message

    def record_weight_version_after_update(self, weight_version):
        if weight_version is not None:
            self.log.append(("version", weight_version))
            self.version = weight_version

    def update_weights_from_tensor(self, recv_req):
        self.log.append(("sglang's own", recv_req.load_format))
        return UpdateWeightsFromTensorReqOutput(success=True, message="Success")


# --- where they stand --------------------------------------------------------------------------

PARALLEL = types.SimpleNamespace(tp_rank=0, tp_size=1, attn_tp_size=1, tp_group=None)


def modules():
    engines = _factory("WeightTransferEngineFactory",
                       {"create_engine": classmethod(_create_engine)})
    trainers = _factory("WeightTransferTrainerFactory",
                        {"trainer_init": classmethod(_trainer_init)})
    return {
        "vllm.distributed.weight_transfer.base": [
            WeightTransferInitInfo, WeightTransferUpdateInfo, TrainerInitInfo, WeightTransferEngine,
            TrainerWeightTransferEngine],
        "vllm.distributed.weight_transfer.factory": [engines, trainers],
        "sglang.srt.plugins.hook_registry": [HookRegistry, HookType],
        "sglang.srt.managers.io_struct": [
            UpdateWeightsFromTensorReqInput, UpdateWeightsFromTensorReqOutput],
        "sglang.srt.managers.scheduler_components.weight_updater": [SchedulerWeightUpdaterManager],
        "sglang.srt.model_executor.model_runner_components.weight_updater": [
            WeightUpdater, _unsupported_derived_weight_cache_error],
    }


@contextmanager
def installed(package):
    """With stubs of `package` and segue's adapter for it imported anew."""
    before = dict(sys.modules)
    adapter = f"segue.adapters.{package}"
    for path, members in modules().items():
        if not path.startswith(package + "."):
            continue
        parts = path.split(".")
        for k in range(1, len(parts) + 1):
            name = ".".join(parts[:k])
            if name not in sys.modules:
                sys.modules[name] = types.ModuleType(name)
                sys.modules[name].__path__ = []
        for member in members:
            setattr(sys.modules[path], member.__name__, member)
    if package == "sglang":
        context = types.ModuleType("sglang.srt.runtime_context")
        context.get_parallel = lambda: PARALLEL
        sys.modules[context.__name__] = context
    sys.modules.pop(adapter, None)
    try:
        yield __import__(adapter, fromlist=["_"])
    finally:
        for name in [n for n in sys.modules if n.split(".")[0] == package or n == adapter]:
            sys.modules.pop(name)
        sys.modules.update({n: m for n, m in before.items()
                            if n.split(".")[0] == package or n == adapter})
