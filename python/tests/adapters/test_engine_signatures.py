# SPDX-License-Identifier: Apache-2.0
"""The stubs against the real packages: parameters, defaults and abstract methods must be the same.

The real sources are read, not imported: from where the package is installed, or from a folder with
unpacked wheels that SEGUE_ENGINE_SOURCES names.
"""

import ast
import importlib.util
import inspect
import os
import pathlib
import re

import pytest
import engine_stubs as stubs

CLASSES = {
    "vllm.distributed.weight_transfer.base": {
        "WeightTransferEngine": ["__init__", "set_weight_update_target",
                                 "reset_weight_update_target",
                                 "parse_init_info", "parse_update_info",
                                 "init_transfer_engine", "start_weight_update",
                                 "finish_weight_update", "update_weights", "receive_weights",
                                 "shutdown"],
        "TrainerWeightTransferEngine": ["__init__", "trainer_init", "send_weights", "shutdown"],
        "TrainerInitInfo": [], "WeightTransferInitInfo": [], "WeightTransferUpdateInfo": []},
    "vllm.distributed.weight_transfer.factory": {
        "WeightTransferEngineFactory": ["register_engine", "create_engine"],
        "WeightTransferTrainerFactory": ["register_engine", "trainer_init"]},
    "sglang.srt.plugins.hook_registry": {"HookRegistry": ["register"], "HookType": []},
    "sglang.srt.managers.io_struct": {
        "UpdateWeightsFromTensorReqInput": [], "UpdateWeightsFromTensorReqOutput": []},
    "sglang.srt.managers.scheduler_components.weight_updater": {
        "SchedulerWeightUpdaterManager": [
            "_select_runners", "flush_cache_after_weight_update",
            "record_weight_version_after_update", "update_weights_from_tensor"]},
    "sglang.srt.model_executor.model_runner_components.weight_updater": {
        "WeightUpdater": ["_assert_weight_cache_inactive", "update_weights_from_tensor"]},
}
FUNCTIONS = {"sglang.srt.model_executor.model_runner_components.weight_updater": [
    "_unsupported_derived_weight_cache_error"]}
WORKER = ("vllm.v1.worker.gpu_worker", "Worker", stubs.VllmWorker, [
    "init_weight_transfer_engine", "start_weight_update", "start_draft_weight_update",
    "_start_weight_update", "_set_draft_weight_update_target", "update_weights",
    "finish_weight_update", "get_draft_model"])


def source_of(module):
    package, _, rest = module.partition(".")
    places = [pathlib.Path(p) / package
              for p in os.environ.get("SEGUE_ENGINE_SOURCES", "").split(":") if p]
    found = importlib.util.find_spec(package)
    if found and found.submodule_search_locations:
        places += map(pathlib.Path, found.submodule_search_locations)
    for place in places:
        path = place.joinpath(*rest.split(".")).with_suffix(".py")
        if path.is_file():
            return ast.parse(path.read_text())
    pytest.skip(f"{package} is not installed here; SEGUE_ENGINE_SOURCES may name unpacked wheels")
    return None


def real_class(module, name):
    for node in source_of(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise AssertionError(f"{module} has no class {name}")


def real_parameters(function):
    """name -> (kind, has a default), without self or cls."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = len(plain) - len(arguments.defaults)
    result = {a.arg: ("plain", k >= defaults) for k, a in enumerate(plain)}
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        result[argument.arg] = ("keyword", default is not None)
    result.pop("self", None)
    result.pop("cls", None)
    return result


def stub_parameters(function):
    kinds = {inspect.Parameter.POSITIONAL_OR_KEYWORD: "plain",
             inspect.Parameter.KEYWORD_ONLY: "keyword"}
    result = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in ("self", "cls"):
            result[name] = (kinds[parameter.kind], parameter.default is not parameter.empty)
    return result


def compare(module, real, stub, methods):
    functions = {n.name: n for n in real.body if isinstance(n, ast.FunctionDef)}
    for method in methods:
        assert stub_parameters(getattr(stub, method)) == real_parameters(functions[method]), (
            f"{module}.{real.name}.{method}")
    abstract = {name for name, node in functions.items() if any(
        "abstractmethod" in ast.unparse(d) for d in node.decorator_list)}
    assert abstract == set(getattr(stub, "__abstractmethods__", ()))


@pytest.mark.parametrize("module", CLASSES)
def test_stubs_have_the_real_signatures(module):
    members = {member.__name__: member for member in stubs.modules()[module]}
    assert members.keys() == {*CLASSES[module], *FUNCTIONS.get(module, ())}
    for name in FUNCTIONS.get(module, ()):
        (real,) = [node for node in source_of(module).body
                   if isinstance(node, ast.FunctionDef) and node.name == name]
        assert stub_parameters(members[name]) == real_parameters(real), name
    for name, methods in CLASSES[module].items():
        real = real_class(module, name)
        compare(module, real, members[name], methods)
        fields = {node.target.id: node.value is not None for node in real.body
                  if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node)}
        if hasattr(members[name], "__dataclass_fields__"):
            missing = stubs.dataclasses.MISSING
            ours = {f.name: f.default is not missing for f in
                    stubs.dataclasses.fields(members[name])}
            fields = {n: d and "kw_only" not in ast.unparse(next(
                node.value for node in real.body if isinstance(node, ast.AnnAssign) and
                node.target.id == n)) for n, d in fields.items()}
            assert ours == fields, name


def test_the_stub_of_the_worker_has_the_real_signatures():
    module, name, stub, methods = WORKER
    compare(module, real_class(module, name), stub, methods)


def test_entry_points_are_read_from_these_groups():
    tree = source_of("vllm.plugins.__init__")
    assert "vllm.general_plugins" in ast.unparse(tree)
    tree = source_of("sglang.srt.plugins.__init__")
    assert "sglang.srt.plugins" in ast.unparse(tree)


def test_vllms_options_name_the_draft_as_the_adapter_reads_them():
    worker = ast.unparse(source_of("vllm.v1.worker.worker_base"))
    assert "self.speculative_config = vllm_config.speculative_config" in worker
    worker = ast.unparse(source_of("vllm.v1.worker.gpu_worker"))
    assert "draft_model, speculative_config.draft_model_config" in worker
    runner = ast.unparse(source_of("vllm.v1.worker.gpu_model_runner"))
    assert "getattr(self, 'drafter', None)" in runner and "model.unwrap()" in runner


@pytest.mark.parametrize("family", ["deepseek", "glm4_moe"])
def test_layers_of_multi_token_prediction_have_these_names(family):
    mtp = ast.unparse(source_of(f"vllm.model_executor.models.{family}_mtp"))
    assert "model.layers.{spec_layer}.mtp_block." in mtp
    nextn = ast.unparse(source_of(f"sglang.srt.models.{family}_nextn"))
    for name in ("enorm", "hnorm", "eh_proj", "decoder", "shared_head"):
        assert f"self.{name} = " in nextn, name
    assert re.search(r"self\.model = \w+NextN\(", nextn)


def test_sglangs_draft_workers_give_their_runners():
    tree = source_of("sglang.srt.speculative.base_spec_worker")
    assert "('draft', runner) for runner in self.draft_worker.draft_runners" in ast.unparse(tree)
    tree = source_of("sglang.srt.managers.tp_worker")
    assert "get_spec().speculative_draft_model_path" in ast.unparse(tree)


def test_sglang_calls_custom_loaders_as_ours_is_written():
    from segue.adapters import sglang

    tree = source_of("sglang.srt.model_executor.model_runner_components.weight_updater")
    assert "custom_loader(self.get_model(), named_tensors)" in ast.unparse(tree)
    assert list(inspect.signature(sglang.load).parameters) == ["model", "named_tensors"]


def test_sglang_lets_a_command_pass():
    """Its unpickler knows a list of harmless names; a command is made of these alone."""
    import base64
    import io
    import pickle

    from segue.adapters import sglang, sglang_http

    tree = source_of("sglang.srt.utils.common")
    (unpickler,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and
                    node.name == "SafeUnpickler"]
    (allowed,) = [ast.literal_eval(node.value) for node in unpickler.body
                  if isinstance(node, ast.Assign) and node.targets[0].id == "ALLOWED_GLOBALS"]

    class Unpickler(pickle.Unpickler):
        def find_class(self, module, name):
            assert (module, name) in allowed
            return super().find_class(module, name)

    command = sglang.Command("apply", 7, options={"store": "dir:x"})
    payload = base64.b64decode(sglang_http._payload(command))
    assert sglang.parse_commands(Unpickler(io.BytesIO(payload)).load()) == [command]
