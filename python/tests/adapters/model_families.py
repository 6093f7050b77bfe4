# SPDX-License-Identifier: Apache-2.0
"""Small random checkpoints of each family, and what an engine's loader makes of them.

The loader is written from how the engines are documented to lay weights out, tensor by tensor with
plain slicing, and shares nothing with segue.adapters.bindings: it is what the bindings are held
against.
"""

import dataclasses
import json
import struct

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: engines hold its tensors")

BF16, F32, F8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn
NAMES = {BF16: "BF16", F32: "F32", F8: "F8_E4M3", torch.float16: "F16", torch.uint8: "U8",
         torch.float8_e8m0fnu: "F8_E8M0"}


def rand(generator, *shape, dtype=BF16):
    if dtype in (F8, torch.float8_e8m0fnu):
        return torch.randint(0, 120, shape, generator=generator, dtype=torch.uint8).view(dtype)
    return torch.randn(*shape, generator=generator, dtype=F32).to(dtype)


def raw(tensor):
    """The tensor's bytes, in its order of elements."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def write_checkpoint(directory, tensors, config):
    directory.mkdir(parents=True, exist_ok=True)
    header, blobs, offset = {}, [], 0
    for name, tensor in tensors.items():
        data = raw(tensor)
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(data)]}
        blobs.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(directory / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def changed(tensors, seed):
    """The next step: about a tenth of the bytes of each tensor are others."""
    generator = torch.Generator().manual_seed(seed)
    result = {}
    for name, tensor in tensors.items():
        flat = tensor.clone().reshape(-1).view(torch.uint8)
        flips = torch.randint(1, 256, flat.shape, generator=generator, dtype=torch.uint8)
        keep = torch.rand(flat.shape, generator=generator) > 0.1
        result[name] = (flat ^ flips.masked_fill(keep, 0)).view(tensor.dtype).reshape(tensor.shape)
    return result


# --- checkpoints -------------------------------------------------------------------------------

BASE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "vocab_size": 100,
        "tie_word_embeddings": False}


def attention(c, out, g, prefix, bias=False, norms=False):
    hidden, size = c["hidden_size"], c["head_dim"]
    for slot, heads in (("q", c["num_attention_heads"]), ("k", c["num_key_value_heads"]),
                        ("v", c["num_key_value_heads"])):
        out[f"{prefix}{slot}_proj.weight"] = rand(g, heads * size, hidden)
        if bias:
            out[f"{prefix}{slot}_proj.bias"] = rand(g, heads * size)
    out[f"{prefix}o_proj.weight"] = rand(g, hidden, c["num_attention_heads"] * size)
    if norms:
        out[f"{prefix}q_norm.weight"] = rand(g, size)
        out[f"{prefix}k_norm.weight"] = rand(g, size)


def mlp(c, out, g, prefix, width=None, slots=("gate_proj", "up_proj", "down_proj")):
    hidden, width = c["hidden_size"], width or c["intermediate_size"]
    gate, up, down = slots
    out[f"{prefix}{gate}.weight"] = rand(g, width, hidden)
    out[f"{prefix}{up}.weight"] = rand(g, width, hidden)
    out[f"{prefix}{down}.weight"] = rand(g, hidden, width)


def ends(c, out, g):
    out["model.embed_tokens.weight"] = rand(g, c["vocab_size"], c["hidden_size"])
    out["model.norm.weight"] = torch.ones(c["hidden_size"], dtype=BF16)
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = rand(g, c["vocab_size"], c["hidden_size"])


def layers(c, out, count=None):
    for k in range(count or c["num_hidden_layers"]):
        prefix = f"model.layers.{k}."
        out[prefix + "input_layernorm.weight"] = torch.ones(c["hidden_size"], dtype=BF16)
        out[prefix + "post_attention_layernorm.weight"] = torch.ones(c["hidden_size"], dtype=BF16)
        yield prefix


def dense(architecture, seed, bias=False, norms=False, **changes):
    c, g, out = {**BASE, "architectures": [architecture], **changes}, gen(seed), {}
    ends(c, out, g)
    for prefix in layers(c, out):
        attention(c, out, g, prefix + "self_attn.", bias, norms)
        mlp(c, out, g, prefix + "mlp.")
    return c, out


def gen(seed):
    return torch.Generator().manual_seed(seed)


def on_disk(architecture, seed, qkv=False, **changes):
    """GLM-4 keeps gate and up in one tensor, Phi-3 queries, keys and values too."""
    c, out = dense(architecture, seed, bias=not qkv, **changes)
    for k in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{k}."
        out[prefix + "mlp.gate_up_proj.weight"] = torch.cat(
            [out.pop(prefix + f"mlp.{s}_proj.weight") for s in ("gate", "up")])
        if qkv:
            out[prefix + "self_attn.qkv_proj.weight"] = torch.cat(
                [out.pop(prefix + f"self_attn.{s}_proj.weight") for s in "qkv"])
    return c, out


def mixture(architecture, seed, experts=4, shared=None, slots=None, first_dense=0, **changes):
    c = {**BASE, "architectures": [architecture], "num_experts": experts,
         "moe_intermediate_size": 16, **changes}
    g, out = gen(seed), {}
    block = "block_sparse_moe." if slots else "mlp."
    ends(c, out, g)
    for k, prefix in enumerate(layers(c, out)):
        attention(c, out, g, prefix + "self_attn.", norms=not slots)
        if k < first_dense:
            mlp(c, out, g, prefix + "mlp.")
            continue
        out[f"{prefix}{block}gate.weight"] = rand(g, experts, c["hidden_size"])
        for e in range(experts):
            mlp(c, out, g, f"{prefix}{block}experts.{e}.", c["moe_intermediate_size"],
                slots or ("gate_proj", "up_proj", "down_proj"))
        if shared:
            mlp(c, out, g, f"{prefix}mlp.{shared}.", 24)
        if shared == "shared_expert":
            out[f"{prefix}mlp.shared_expert_gate.weight"] = rand(g, 1, c["hidden_size"])
        elif shared:
            out[f"{prefix}mlp.gate.e_score_correction_bias"] = rand(g, experts, dtype=F32)
    return c, out


def experts_in_one(architecture, seed):
    """The same, with one tensor for all experts."""
    c, out = mixture(architecture, seed)
    for k in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{k}.mlp.experts."
        each = {s: [out.pop(f"{prefix}{e}.{s}_proj.weight") for e in range(4)]
                for s in ("gate", "up", "down")}
        out[prefix + "gate_up_proj"] = torch.stack(
            [torch.cat(pair) for pair in zip(each["gate"], each["up"], strict=True)])
        out[prefix + "down_proj"] = torch.stack(each["down"])
    return c, out


def latent(seed, **changes):
    """DeepSeek: latent attention, shared experts, one dense layer first, one layer behind the
    model's own for multi-token prediction."""
    c, out = mixture("DeepseekV3ForCausalLM", seed, shared="shared_experts", first_dense=1,
                     num_nextn_predict_layers=1, qk_nope_head_dim=8, qk_rope_head_dim=4,
                     v_head_dim=8, q_lora_rank=16, kv_lora_rank=12, num_key_value_heads=8,
                     **changes)
    g, heads, hidden = gen(seed + 1), c["num_attention_heads"], c["hidden_size"]
    for k in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{k}.self_attn."
        for name in [name for name in out if name.startswith(prefix)]:
            del out[name]
        out[prefix + "q_a_proj.weight"] = rand(g, 16, hidden)
        out[prefix + "q_a_layernorm.weight"] = rand(g, 16)
        out[prefix + "q_b_proj.weight"] = rand(g, heads * 12, 16)
        out[prefix + "kv_a_proj_with_mqa.weight"] = rand(g, 12 + 4, hidden)
        out[prefix + "kv_a_layernorm.weight"] = rand(g, 12)
        out[prefix + "kv_b_proj.weight"] = rand(g, heads * 16, 12)
        out[prefix + "o_proj.weight"] = rand(g, hidden, heads * 8)
    out["model.layers.2.eh_proj.weight"] = rand(g, hidden, 2 * hidden)
    out["model.layers.2.shared_head.norm.weight"] = rand(g, hidden)
    return c, out


def fp8(seed):
    """Weights of 8 bits with a scale for each block of 128 x 128."""
    c, out = dense("Qwen3ForCausalLM", seed, norms=True, hidden_size=256, head_dim=128,
                   intermediate_size=512, num_attention_heads=4, num_key_value_heads=2)
    g = gen(seed + 1)
    for name in [name for name in out if "_proj." in name]:
        rows, columns = out[name].shape
        out[name] = rand(g, rows, columns, dtype=F8)
        out[name + "_scale_inv"] = rand(g, rows // 128, columns // 128, dtype=F32)
    return c, out


# --- what a loader makes of them ---------------------------------------------------------------


@dataclasses.dataclass
class Engine:
    """One rank of an engine. `experts`: ranks that share the experts out instead of cutting them;
    `runner`: experts lie one module deeper, as in newer vLLM; `derived`: memory of its own for what
    attention derives from kv_b_proj; `attention`: ranks that share one attention layer, where it is
    data-parallel (the embedding is whole then)."""

    rank: int = 0
    size: int = 1
    attention: int = 0
    experts: int = 1
    runner: bool = False
    derived: bool = False
    wide_router: bool = False
    own_head: bool = False

    def of_attention(self):
        size = self.attention or self.size
        return dataclasses.replace(self, rank=self.rank % size, size=size)


def cut(tensor, dim, index, parts):
    return tensor.chunk(parts, dim)[index].clone() if parts > 1 else tensor.clone()


def load(c, tensors, e):
    """name -> parameter of rank e.rank."""
    out, done = {}, set()
    for name, tensor in tensors.items():
        for loader in (_load_mtp, _load_vocabulary, _load_attention, _load_latent, _load_experts,
                       _load_mlp):
            if name in done or loader(c, tensors, e, name, tensor, out, done):
                break
        else:
            wide = e.wide_router and name.endswith("mlp.gate.weight")
            out[name] = tensor.to(F32) if wide else tensor.clone()
    if c["tie_word_embeddings"] and e.own_head:
        out["lm_head.weight"] = out["model.embed_tokens.weight"].clone()
    return out


def _load_mtp(c, _tensors, _e, name, _tensor, _out, _done):
    behind = c["num_hidden_layers"]
    return name.startswith(f"model.layers.{behind}.")


def _load_vocabulary(c, _tensors, e, name, tensor, out, _done):
    if name not in ("model.embed_tokens.weight", "lm_head.weight"):
        return False
    if name == "lm_head.weight" and c["tie_word_embeddings"]:
        return True  # The embedding's storage.
    padded = torch.zeros(-(-tensor.shape[0] // 64) * 64, tensor.shape[1], dtype=tensor.dtype)
    padded[:tensor.shape[0]] = tensor
    whole = e.attention and "embed" in name
    out[name] = padded if whole else cut(padded, 0, e.rank, e.size)
    return True


def _load_attention(c, tensors, e, name, tensor, out, done):
    e = e.of_attention()
    prefix, _, rest = name.partition("self_attn.")
    slot, _, leaf = rest.partition(".")
    if slot == "o_proj":
        out[name] = cut(tensor, 1, e.rank, e.size)
        return True
    if slot == "qkv_proj":  # Fused in the checkpoint.
        heads, size = c["num_attention_heads"], c["head_dim"]
        keys = c["num_key_value_heads"]
        q, k, v = tensor.split([heads * size, keys * size, keys * size])
        out[name] = _qkv(c, e, q, k, v)
        return True
    if slot not in ("q_proj", "k_proj", "v_proj"):
        return False
    names = [f"{prefix}self_attn.{s}_proj.{leaf}" for s in "qkv"]
    out[f"{prefix}self_attn.qkv_proj.{leaf}"] = _qkv(c, e, *(tensors[n] for n in names))
    done.update(names)
    return True


def _qkv(c, e, q, k, v):
    keys = c["num_key_value_heads"]
    alike = max(1, e.size // keys)
    parts = min(e.size, keys)
    return torch.cat([cut(q, 0, e.rank, e.size), cut(k, 0, e.rank // alike, parts),
                      cut(v, 0, e.rank // alike, parts)])


def _load_latent(c, tensors, e, name, tensor, out, done):
    e = e.of_attention()
    prefix, _, rest = name.partition("self_attn.")
    prefix += "self_attn."
    if rest == "q_a_proj.weight":
        other = prefix + "kv_a_proj_with_mqa.weight"
        fused = "fused_qkv_a_proj" + ("" if e.runner else "_with_mqa") + ".weight"
        out[prefix + fused] = torch.cat([tensor, tensors[other]])
        done.add(other)
    elif rest == "q_b_proj.weight":
        out[name] = cut(tensor, 0, e.rank, e.size)
    elif rest == "kv_b_proj.weight":
        out[name] = cut(tensor, 0, e.rank, e.size)
        if e.derived:
            nope, value = c["qk_nope_head_dim"], c["v_head_dim"]
            by_head = out[name].unflatten(0, (-1, nope + value))
            keys, values = by_head.split([nope, value], 1)
            names = ("mla_attn.W_UK_T", "mla_attn.W_UV") if e.runner else ("w_kc", "w_vc")
            out[prefix + names[0]] = keys.transpose(1, 2).contiguous().transpose(1, 2)
            out[prefix + names[1]] = values.contiguous().transpose(1, 2)
    else:
        return False
    return True


def _load_experts(c, tensors, e, name, tensor, out, done):
    prefix, found, rest = name.partition(".experts.")
    if not found:
        return False
    within = prefix + ".experts." + ("routed_experts." if e.runner else "")
    if rest in ("gate_up_proj", "down_proj"):
        gates = [w.chunk(2)[0] for w in tensors[prefix + ".experts.gate_up_proj"]]
        ups = [w.chunk(2)[1] for w in tensors[prefix + ".experts.gate_up_proj"]]
        downs = list(tensors[prefix + ".experts.down_proj"])
        done.update(prefix + ".experts." + s for s in ("gate_up_proj", "down_proj"))
    else:
        expert, slot, _ = rest.split(".")
        slots = ("w1", "w3", "w2") if slot in ("w1", "w2", "w3") else (
            "gate_proj", "up_proj", "down_proj")
        count = c["num_experts"]
        names = [[f"{prefix}.experts.{k}.{s}.weight" for k in range(count)] for s in slots]
        gates, ups, downs = ([tensors[n] for n in row] for row in names)
        done.update(sum(names, []))
    mine = len(gates) // e.experts
    inner = e.size // e.experts
    group, index = e.rank // inner, e.rank % inner
    chosen = range(group * mine, (group + 1) * mine)
    out[within + "w13_weight"] = torch.stack([torch.cat(
        [cut(gates[k], 0, index, inner), cut(ups[k], 0, index, inner)]) for k in chosen])
    out[within + "w2_weight"] = torch.stack([cut(downs[k], 1, index, inner) for k in chosen])
    return True


def _load_mlp(_c, tensors, e, name, tensor, out, done):
    prefix, slot, leaf = (name.rsplit(".", 2) + ["", ""])[:3]
    if slot == "down_proj":
        out[name] = cut(tensor, 1, e.rank, e.size)
    elif slot == "gate_up_proj":
        gate, up = tensor.chunk(2)
        out[name] = torch.cat([cut(gate, 0, e.rank, e.size), cut(up, 0, e.rank, e.size)])
    elif slot in ("gate_proj", "up_proj"):
        names = [f"{prefix}.{s}_proj.{leaf}" for s in ("gate", "up")]
        out[f"{prefix}.gate_up_proj.{leaf}"] = torch.cat(
            [cut(tensors[n], 0, e.rank, e.size) for n in names])
        done.update(names)
    else:
        return False
    return True


FAMILIES = {
    "llama": lambda: (*dense("LlamaForCausalLM", 1), {}),
    "qwen2-tied": lambda: (*dense("Qwen2ForCausalLM", 2, bias=True, tie_word_embeddings=True), {}),
    "qwen2-own-head": lambda: (*dense("Qwen2ForCausalLM", 3, bias=True, tie_word_embeddings=True),
                               {"own_head": True}),
    "qwen3": lambda: (*dense("Qwen3ForCausalLM", 4, norms=True), {}),
    "qwen3-fp8": lambda: (*fp8(5), {}),
    "mixtral": lambda: (*mixture("MixtralForCausalLM", 6, slots=("w1", "w3", "w2")), {}),
    "qwen3-moe": lambda: (*mixture("Qwen3MoeForCausalLM", 7), {"runner": True}),
    "qwen3-moe-one-tensor": lambda: (*experts_in_one("Qwen3MoeForCausalLM", 8), {}),
    "qwen2-moe": lambda: (*mixture("Qwen2MoeForCausalLM", 9, shared="shared_expert"), {}),
    "glm4": lambda: (*on_disk("Glm4ForCausalLM", 10), {}),
    "phi3": lambda: (*on_disk("Phi3ForCausalLM", 11, qkv=True), {}),
    "glm4-moe": lambda: (*mixture("Glm4MoeForCausalLM", 12, shared="shared_experts",
                                  first_dense=1), {"wide_router": True}),
    "deepseek-sglang": lambda: (*latent(13), {"derived": True}),
    "deepseek-vllm": lambda: (*latent(14), {"derived": True, "runner": True}),
}
