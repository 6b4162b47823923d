"""A GGUF file as a bf16 safetensors folder in the hub's layout, from our own dequantised weights.

So that transformers and vLLM run the very weights that our engine and llama.cpp read. There is no
tokenizer in the folder: every engine is given token ids.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from agentmem.engine import sources
from agentmem.engine.config import DecoderConfig
from agentmem.engine.config_gguf import config_from_gguf
from agentmem.errors import DataError
from agentmem.modelfiles.fetch import cache_dir, model_name, verify
from agentmem.modelfiles.gguf import GGUF

FORMAT = 1
"""Part of the folder's mark: a folder of another format is made again."""
_KINDS = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
}


def converted(path: Path) -> Path:
    """The folder of a model file, made on first use; a folder is given back as it is."""
    if path.is_dir():
        return path
    folder = cache_dir() / "peers" / "models" / f"{model_name(path)}-bf16"
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark = f"{FORMAT} {verify(path)}"
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = folder / "made_from"
        if not made.is_file() or made.read_text() != mark:
            fresh = folder.with_name(f".{folder.name}.{os.getpid()}")
            shutil.rmtree(fresh, ignore_errors=True)
            convert(path, fresh)
            (fresh / "made_from").write_text(mark)
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
    return folder


def convert(path: Path, folder: Path) -> None:
    """Write the folder: model.safetensors and config.json."""
    file = GGUF.open(path)
    config = config_from_gguf(file)
    if config.rope.divisors:
        raise DataError(f"{path} scales its positions by a table, which no hub folder can say")
    tensors = {hub_name(name, file.arch): _tensor(file, config, name) for name in file.tensors}
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    settings = hub_config(config, file, tied="output.weight" not in file.tensors)
    (folder / "config.json").write_text(json.dumps(settings, indent=1))


def hub_name(name: str, arch: str) -> str:
    """The hub's name of a GGUF tensor; DataError for one that is not known."""
    known = sources.hub_name(name, gemma=arch == "gemma3")
    if known is None:
        raise DataError(f"no hub name is known for tensor {name!r}")
    return known


def hub_config(config: DecoderConfig, file: GGUF, tied: bool) -> dict[str, Any]:
    """config.json of the folder."""
    c = config
    name, kind = _KINDS[c.arch]
    settings: dict[str, Any] = {
        "architectures": [name],
        "model_type": kind,
        "dtype": "bfloat16",
        "vocab_size": c.vocab_size,
        "hidden_size": c.width,
        "intermediate_size": c.ffn_width,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "max_position_embeddings": c.window,
        "rms_norm_eps": c.norm_eps,
        "tie_word_embeddings": tied,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id"),
        "rope_parameters": _rope(c.rope.theta, c.rope.linear_factor),
    }
    if c.arch != "gemma3":
        return settings | {"hidden_act": "silu"}
    kinds = ["sliding_attention" if c.is_sliding(i) else "full_attention" for i in range(c.layers)]
    local = c.local_rope or c.rope
    scalar = c.head_dim if c.query_scale is None else round(c.query_scale**-2)
    return settings | {
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": kinds,
        "sliding_window": c.sliding_window,
        "query_pre_attn_scalar": scalar,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "rope_parameters": {
            "full_attention": settings["rope_parameters"],
            "sliding_attention": _rope(local.theta, local.linear_factor),
        },
    }


def _rope(theta: float, factor: float) -> dict[str, Any]:
    if factor == 1.0:
        return {"rope_type": "default", "rope_theta": theta}
    return {"rope_type": "linear", "rope_theta": theta, "factor": factor}


def _tensor(file: GGUF, config: DecoderConfig, name: str) -> torch.Tensor:
    """The numbers as the hub orders them: rotations in halves, Gemma's norms less one."""
    values = torch.from_numpy(file.tensor(name))
    if file.arch == "gemma3" and name.endswith("norm.weight"):
        values = values - 1
    inner = name.split(".")[-2]
    if file.arch == "llama" and inner in ("attn_q", "attn_k"):
        heads = config.heads if inner == "attn_q" else config.kv_heads
        pairs = values.view(heads, -1, 2, *values.shape[1:])
        values = pairs.transpose(1, 2).reshape(values.shape)
    return values.to(torch.bfloat16).contiguous()
