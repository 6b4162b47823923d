"""All layers in one call give what the operations give one by one, bit for bit."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from agentmem.engine.batch import Batch
from agentmem.engine.config import DecoderConfig, Rope
from agentmem.engine.kernels import plan
from agentmem.engine.kernels.native import NativeKernels
from agentmem.engine.kernels.weights import Weight, WeightFormat
from agentmem.engine.kv.layout import KVKind, KVPages
from agentmem.engine.models.decoder import Decoder, DecoderWeights, LayerWeights
from agentmem.engine.quant.formats import quantise

LLAMA = DecoderConfig("llama", 3, 64, 4, 2, 32, 96, 50, 512, 1e-5, Rope(10000.0))
GEMMA = replace(
    LLAMA,
    arch="gemma3",
    kv_heads=1,
    local_rope=Rope(1000.0),
    sliding_window=24,
    sliding=(True, False, True),
    activation="gelu_tanh",
    qk_norm=True,
    post_norms=True,
    embed_scale=8.0,
)


def decoder(
    config: DecoderConfig,
    kernels: NativeKernels,
    format: WeightFormat,
    *,
    fused: bool = False,
    biased: bool = False,
) -> Decoder:
    dtype = torch.float32 if format == "fp32" else torch.bfloat16
    norm_dtype = dtype if fused else torch.float32
    c = config

    def matrix(rows: int, columns: int, static: bool = False) -> Weight:
        made = quantise(torch.randn(rows, columns) * columns**-0.5, format)
        return replace(made, input_scale=torch.tensor([0.02])) if static else made

    def norm(kind: torch.dtype = torch.float32) -> Tensor:
        return (torch.rand(c.width) + 0.5).to(kind)

    def layer() -> LayerWeights:
        heads = c.heads + 2 * c.kv_heads
        return LayerWeights(
            norm(norm_dtype),
            matrix(heads * c.head_dim, c.width, fused),
            torch.randn(heads * c.head_dim).to(dtype) if biased else None,
            matrix(c.width, c.heads * c.head_dim),
            torch.randn(c.width) if biased else None,
            norm(norm_dtype),
            matrix(2 * c.ffn_width, c.width, fused),
            matrix(c.width, c.ffn_width),
            torch.rand(c.heads + c.kv_heads, c.head_dim) if c.qk_norm else None,
            norm() if c.post_norms else None,
            norm() if c.post_norms else None,
            fused,
            fused,
        )

    embedding = matrix(c.vocab_size, c.width)
    layers = tuple(layer() for _ in range(c.layers))
    weights = DecoderWeights(embedding, layers, norm(), embedding)
    residual = dtype if fused else torch.float32
    return Decoder(c, weights, kernels, dtype=dtype, residual=residual)


def batch_of(made: Decoder, runs: list[tuple[int, int]]) -> Batch:
    """(rows, context) of each sequence; every sequence has 40 blocks of its own."""
    positions = torch.cat([torch.arange(context - rows, context) for rows, context in runs])
    starts = torch.tensor([0, *(rows for rows, _ in runs)]).cumsum(0).int()
    table = (torch.arange(len(runs) * 40).view(-1, 40) + 1).int()
    owner = torch.tensor([i for i, (rows, _) in enumerate(runs) for _ in range(rows)])
    slots = table[owner, positions // 16].long() * 16 + positions % 16
    tokens = torch.randint(made.config.vocab_size, (len(positions),))
    contexts = torch.tensor([context for _, context in runs], dtype=torch.int32)
    groups = len(made.groups)
    last = starts[1:].long() - 1
    return Batch(tokens, positions, starts, contexts, (table,) * groups, (slots,) * groups, last)


def by_operations(made: Decoder, batch: Batch, pages: list[KVPages]) -> Tensor:
    """Logits with the plan left out."""
    made._plan = None
    return made.forward(batch, pages)


def by_plan(made: Decoder, batch: Batch, pages: list[KVPages]) -> Tensor:
    assert plan.takes(made)
    kernels = made.kernels
    x = kernels.embed(batch.tokens, made.weights.embedding)
    if made.config.embed_scale != 1.0:
        x *= made.config.embed_scale
    x = x.to(made.residual)
    far, near = made._rope.at(batch.positions), made._local_rope.at(batch.positions)
    h = plan.Plan(made).run(x, far, near, batch, pages)
    return kernels.linear(h[batch.outputs], made.weights.head)


CASES: list[dict[str, Any]] = [
    {"format": "bf16"},
    {"format": "int8", "biased": True},
    {"format": "int4"},
    {"format": "fp32"},
    {"format": "fp8", "fused": True},
    {"format": "fp8", "config": GEMMA},
    {"format": "int8", "config": GEMMA, "kind": "int8"},
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_as_by_operations(
    kernels: NativeKernels, case: dict[str, Any], threads: int
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        rest = {k: v for k, v in case.items() if k not in ("config", "kind")}
        made = decoder(case.get("config", LLAMA), kernels, **rest)
        kind: KVKind = case.get("kind", "fp32" if made.dtype == torch.float32 else "bf16")
        pages = [[KVPages.empty(spec, 90, 16, kind) for spec in made.groups] for _ in range(2)]
        for runs in ([(9, 9), (5, 5)], [(1, 10), (3, 8)], [(1, 11), (1, 9)], [(1, 12)]):
            batch = batch_of(made, runs)
            wanted = by_operations(made, batch, pages[0])
            found = by_plan(made, batch, pages[1])
            assert bool(wanted.isfinite().all())
            assert torch.equal(found, wanted)
    finally:
        torch.set_num_threads(before)


def test_long_contexts_are_shared_by_threads(kernels: NativeKernels) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        made = decoder(GEMMA, kernels, "int8")
        pages = [KVPages.empty(spec, 45, 16, "bf16") for spec in made.groups]
        for p in pages:
            p.data.normal_()
        other = [KVPages(p.data.clone(), None, p.kind) for p in pages]
        batch = batch_of(made, [(2, 600)])
        assert torch.equal(by_plan(made, batch, pages), by_operations(made, batch, other))
    finally:
        torch.set_num_threads(before)


def test_what_a_plan_does_not_take(kernels: NativeKernels) -> None:
    made = decoder(LLAMA, kernels, "bf16")
    made.dtype = torch.float16
    assert not plan.takes(made)
    made = decoder(LLAMA, kernels, "bf16")
    made.dtype = torch.float32  # bf16 matrices would round such activations
    assert not plan.takes(made)
