"""A decoder's shape from GGUF metadata."""

from __future__ import annotations

from agentmem.engine.config import DecoderConfig, Rope
from agentmem.errors import DataError
from agentmem.modelfiles.gguf import GGUF

ARCHITECTURES = ("llama", "qwen2", "gemma3")
_GEMMA_PATTERN = 6
_GEMMA_LOCAL_THETA = 10_000.0


def config_from_gguf(file: GGUF) -> DecoderConfig:
    """Read sizes, positions and windows; DataError for an architecture that is not known."""
    if file.arch not in ARCHITECTURES:
        raise DataError(
            f"{file.path} is a {file.arch!r} model; known are {', '.join(ARCHITECTURES)}"
        )
    if file.value("expert_count", 0):
        raise DataError(f"{file.path} is a mixture of experts, which is not supported")
    layers, width, heads = (
        int(file.value(key)) for key in ("block_count", "embedding_length", "attention.head_count")
    )
    head_dim = int(file.value("attention.key_length", width // heads))
    gemma = file.arch == "gemma3"
    sliding = _sliding(file, layers) if gemma else ()
    return DecoderConfig(
        arch=file.arch,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=int(file.value("attention.head_count_kv", heads)),
        head_dim=head_dim,
        ffn_width=int(file.value("feed_forward_length")),
        vocab_size=file.tensors["token_embd.weight"].shape[0],
        window=int(file.value("context_length")),
        norm_eps=float(file.value("attention.layer_norm_rms_epsilon")),
        rope=_rope(file, 1_000_000.0 if gemma else 10_000.0),
        local_rope=Rope(_GEMMA_LOCAL_THETA) if gemma else None,
        sliding_window=int(file.value("attention.sliding_window")) if sliding else None,
        sliding=sliding,
        activation="gelu_tanh" if gemma else "silu",
        qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        post_norms=gemma,
        embed_scale=width**0.5 if gemma else 1.0,
        # the 27B model alone scales queries by width per head instead of head size
        query_scale=(width / heads) ** -0.5 if gemma and layers == 62 else None,
    )


def _sliding(file: GGUF, layers: int) -> tuple[bool, ...]:
    if not file.value("attention.sliding_window", 0):
        return ()
    every = int(file.value("attention.sliding_window_pattern", _GEMMA_PATTERN))
    return tuple((layer + 1) % every != 0 for layer in range(layers))


def _rope(file: GGUF, theta: float) -> Rope:
    kind = file.value("rope.scaling.type", "none")
    factor = float(file.value("rope.scaling.factor", 1.0))
    if kind not in ("none", "linear"):
        raise DataError(f"{file.path} scales positions by {kind!r}, which is not supported")
    divisors = None
    if "rope_freqs.weight" in file.tensors:
        divisors = tuple(float(d) for d in file.tensor("rope_freqs.weight"))
    return Rope(
        theta=float(file.value("rope.freq_base", theta)),
        linear_factor=factor if kind == "linear" else 1.0,
        divisors=divisors,
    )
