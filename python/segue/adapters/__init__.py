# SPDX-License-Identifier: Apache-2.0
"""Adapters: Segue inside inference engines.

- `segue.adapters.vllm`: a weight transfer engine for vLLM; a worker extension for older releases.
- `segue.adapters.sglang`: a plugin and a custom weight loader for SGLang.
- `segue.adapters.vllm_http` and `sglang_http`: control of their servers, for a trainer's side.
- `segue.adapters.bindings`: where the tensors of a checkpoint lie in an engine's parameters.

Nothing here imports an engine or torch before it is used. docs/engines.md says how to switch it on,
and what has been run.
"""
