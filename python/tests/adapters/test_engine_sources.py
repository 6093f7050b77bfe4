# SPDX-License-Identifier: Apache-2.0
"""The adapters under the engines' own code, where its sources can be read (as for
test_engine_signatures.py): methods of vLLM's worker and of SGLang's scheduler are taken out of
their classes as they stand, and run on models of this process. What they ask of the rest of their
engine stands in as little as lets them run."""

import ast
import contextlib
import textwrap
import types

import pytest
import engine_stubs as stubs
from test_draft_commands import Models, config_of
from test_engine_signatures import source_of


def taken(module, name, methods, world):
    """Class `name` of a module's source with these methods alone, in a namespace of `world`."""
    (real,) = [node for node in source_of(module).body
               if isinstance(node, ast.ClassDef) and node.name == name]
    bodies = [node for node in real.body
              if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and
              node.name in methods]
    assert {node.name for node in bodies} == set(methods)
    text = "\n".join(ast.unparse(node) for node in bodies)
    space = dict(world)
    exec(f"from __future__ import annotations\n"  # noqa: S102
         f"class {name}:\n{textwrap.indent(text, '    ')}", space)
    return space[name]


@pytest.fixture
def models(tmp_path):
    return Models(tmp_path)


WORKER = ["_check_weight_transfer_engine", "init_weight_transfer_engine", "start_weight_update",
          "start_draft_weight_update", "_start_weight_update", "update_weights",
          "finish_weight_update", "get_draft_model", "_set_draft_weight_update_target",
          "supports_draft_weight_updates"]
TRANSFER = ["__init__", "set_weight_update_target", "reset_weight_update_target",
            "parse_init_info", "parse_update_info"]


def test_vllms_own_worker_hands_its_draft_over(models):
    heads = []
    world = {"set_current_vllm_config": lambda config: contextlib.nullcontext(),
             "share_source_lm_heads": lambda model: heads.append("shared"),
             "restore_quantized_lm_heads": lambda model, refresh=True: heads.append("restored")}
    worker = taken("vllm.v1.worker.gpu_worker", "Worker", WORKER, world)()
    base = taken("vllm.distributed.weight_transfer.base", "WeightTransferEngine", TRANSFER, {})
    with stubs.installed("vllm") as vllm, pytest.MonkeyPatch.context() as patch:
        for name in TRANSFER:
            patch.setattr(vllm.WeightTransferEngine, name, getattr(base, name))
        worker.vllm_config = config_of(models)
        worker.speculative_config = worker.vllm_config.speculative_config
        worker.model_runner = types.SimpleNamespace(get_draft_model=lambda: models.draft,
                                                    reset_lora_state=lambda: heads.append("lora"))
        worker._weight_update_active = worker._weight_update_is_draft = False
        worker.weight_transfer_engine = vllm.SegueWeightTransferEngine(
            None, worker.vllm_config, "cpu", models.policy)
        assert worker.supports_draft_weight_updates()
        worker.init_weight_transfer_engine(models.info)
        worker.start_draft_weight_update()
        worker.finish_weight_update()
        assert heads == ["shared", "restored"]
        worker.start_weight_update()
        worker.update_weights({"version": 1})
        worker.finish_weight_update()
        assert heads[-1] == "lora"
        models.expect(1, 1)
        worker.start_weight_update()
        with pytest.raises(ValueError, match="apply needs"):
            worker.update_weights({"action": "apply"})
        worker.start_draft_weight_update()
        worker.finish_weight_update()
        worker.weight_transfer_engine.shutdown()


def test_sglangs_own_scheduler_finds_its_draft(models):
    updater = "sglang.srt.managers.scheduler_components.weight_updater"
    parse = [node for node in source_of(updater).body
             if isinstance(node, ast.FunctionDef) and node.name == "_parse_runner_selector"]
    world = {}
    exec("from __future__ import annotations\n" + ast.unparse(parse[0]), world)  # noqa: S102
    manager = taken(updater, "SchedulerWeightUpdaterManager", ["_select_runners"], world)()
    drafts = taken("sglang.srt.speculative.base_spec_worker", "BaseSpecWorker",
                   ["weight_update_runners"], {})()
    target = taken("sglang.srt.managers.tp_worker", "TpModelWorker",
                   ["weight_update_runners"], {})()
    target._model_runner = stubs.runner(models.policy, str(models.runs[0].directory))
    drafts.draft_worker = types.SimpleNamespace(
        draft_runners=[stubs.runner(models.draft, str(models.runs[1].directory))])
    manager.tp_worker, manager.draft_worker = target, drafts
    with stubs.installed("sglang") as sglang:
        started = sglang._started(manager, "all")
        status = sglang.run(started, sglang.Command("open", options=models.info))
        assert status["draft"]["version"] == 0
        assert sglang.run(started, sglang.Command("update"))["draft"]["version"] == 1
        sglang.run(started, sglang.Command("close"))
    models.expect(1, 1)
