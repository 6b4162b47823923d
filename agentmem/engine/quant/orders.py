"""What a model's fused norms do: which are fused, and what each order of rounding changes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentmem.engine.kernels.torch_backend import kernels_for
from agentmem.engine.loader import load_decoder
from agentmem.engine.models.decoder import Decoder
from agentmem.engine.quant.calibrate import Progress, texts
from agentmem.engine.quant.calibration import Calibration
from agentmem.engine.quant.losses import Perplexity, perplexity
from agentmem.engine.quant.measure import OrderGap, Text, cast_first, order_gaps, ranges

CAST_FIRST = ("llama", "qwen2")
"""Models whose own reference rounds in another order than this engine, fused or not."""


@dataclass(frozen=True, slots=True)
class Orders:
    """Measured on `tokens` tokens. `notes` say why norms are not fused."""

    tokens: int
    norms: int
    fused: int
    notes: tuple[str, ...]
    gaps: tuple[OrderGap, ...]
    plain: Perplexity
    cast_first: Perplexity
    round_first: Perplexity
    no_round: Perplexity
    reference_casts: bool
    """The model's own reference (transformers) is cast-first."""


def orders(
    path: Path, tokens: int, text: str | None = None, on_progress: Progress | None = None
) -> Orders:
    """Run bf16 as it is and cast-first, and static FP8 in both orders, on one short text."""
    report = on_progress or (lambda _what, _share: None)
    decoder = load_decoder(path, "bf16")
    windows, source = texts(path, decoder, tokens, text, report)
    longest, count = max(map(len, windows)), sum(map(len, windows))

    def run(what: str, model: Decoder) -> Perplexity:
        report(what, 0.0)
        found = perplexity(Text(model, longest), windows)
        report(what, 1.0)
        return found

    report("comparing orders of rounding", 0.0)
    gaps = order_gaps(decoder, windows)
    scales = Calibration("", ranges(decoder, windows).scales(), 100.0, count, source)
    plain, cast = run("bf16", decoder), run("bf16, cast-first", cast_first(decoder))
    del decoder
    static = load_decoder(path, "fp8", kernels=kernels_for(False), calibration=scales)
    layers = static.weights.layers
    first = run("fp8+static, round-first", static)
    static.order = "no-round"
    return Orders(
        tokens=count,
        norms=2 * len(layers),
        fused=sum(layer.fuse_attn_norm + layer.fuse_ffn_norm for layer in layers),
        notes=static.notes,
        gaps=gaps,
        plain=plain,
        cast_first=cast,
        round_first=first,
        no_round=run("fp8+static, no-round", static),
        reference_casts=static.config.arch in CAST_FIRST,
    )


def lines(found: Orders) -> list[str]:
    """The findings for a reader."""
    told = [
        f"{found.fused} of {found.norms} norms are fused with FP8 quantisation (mode fp8, static)"
    ]
    told += found.notes
    told.append(f"against round-first, on {found.tokens:,} tokens:")
    for gap in found.gaps:
        told.append(
            f"  {gap.order:10} {gap.differing:.2%} of the codes differ, by at most "
            f"{gap.steps_max} step{'s' * (gap.steps_max != 1)}"
        )
    told.append(
        f"  perplexity, bf16:       {found.plain.value:.3f}; "
        f"cast-first {found.cast_first.loss_over(found.plain):+.3%}"
    )
    told.append(
        f"  perplexity, fp8+static: {found.round_first.value:.3f}; "
        f"no-round {found.no_round.loss_over(found.round_first):+.3%}"
    )
    if found.reference_casts:
        apart = f"{found.gaps[1].relative_rms:.1e}"
        told.append(
            "transformers computes this model's norms cast-first; this engine does not, fused or "
            f"not: the values are {apart} apart (root mean square, relative)"
        )
    return told
