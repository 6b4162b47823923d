"""The engine's number formats by name, and what each loses on a text against bf16."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentmem.engine.kernels.base import Kernels
from agentmem.engine.kernels.weights import Weight, WeightFormat
from agentmem.engine.kv.layout import KVKind
from agentmem.engine.loader import load_decoder
from agentmem.engine.models.decoder import Decoder, DecoderWeights
from agentmem.engine.quant.activations import linears
from agentmem.engine.quant.calibration import Calibration
from agentmem.engine.quant.losses import Perplexity, perplexity
from agentmem.engine.quant.measure import Text
from agentmem.errors import DataError, UsageError, nearest


@dataclass(frozen=True, slots=True)
class ModeSpec:
    """How a mode holds weights, activations, and keys and values."""

    format: WeightFormat
    meaning: str
    static: bool = False
    """Activations in e4m3 with calibrated scales, norms fused where they may be."""
    kv: KVKind | None = None
    """None: as activations are."""
    grouped: bool = False
    """Many rows meet the weights with activations in 8 bits, by groups of 64."""


MODES: dict[str, ModeSpec] = {
    "fp32": ModeSpec("fp32", "everything in float32"),
    "bf16": ModeSpec("bf16", "weights and activations in bf16, sums in float32"),
    "int8": ModeSpec("int8", "weights in 8 bits, a scale an output"),
    "int8+group64": ModeSpec(
        "int8", "int8, and the activations of a prefill by groups of 64, natively", grouped=True
    ),
    "fp8": ModeSpec("fp8", "weights in e4m3, a scale an output"),
    "int4": ModeSpec("int4", "weights in 4 bits, scale and offset for 32 inputs; ends int8"),
    "fp8+static": ModeSpec("fp8", "fp8, and activations in e4m3 by calibrated scales", static=True),
    "kv-int8": ModeSpec("bf16", "bf16, but keys and values in 8 bits, a scale a row", kv="int8"),
}
BASE = "bf16"


@dataclass(frozen=True, slots=True)
class ModeLoss:
    """One mode on one text. `loss` is of perplexity, relative to bf16; None for bf16 not run."""

    mode: str
    perplexity: float
    nll: float
    tokens: int
    loss: float | None
    weights_bytes: int
    seconds: float
    notes: tuple[str, ...] = ()


def chosen(names: str) -> list[str]:
    """Modes of a comma-separated list, bf16 first; UsageError for an unknown one."""
    given = [name.strip() for name in names.split(",") if name.strip()]
    if given == ["all"]:
        given = [name for name in MODES if name != "fp32"]
    for name in given:
        if name not in MODES:
            raise UsageError(f"no engine mode {name!r}; {nearest(name, list(MODES))}")
    if not given:
        raise UsageError(f"no mode given; known: all, {', '.join(MODES)}")
    return [BASE, *(name for name in dict.fromkeys(given) if name != BASE)]


def load_mode(
    path: Path,
    name: str,
    calibration: Calibration | None = None,
    kernels: Kernels | None = None,
) -> Decoder:
    """A decoder in a mode. DataError for a static one that finds no scales."""
    spec = MODES[name]
    if spec.grouped:
        kernels = grouped(kernels)
    given = calibration if spec.static else None
    decoder = load_decoder(path, spec.format, kernels=kernels, calibration=given)
    if spec.static and all(m.input_scale is None for _, m in linears(decoder.weights)):
        raise DataError(f"the mode {name} needs scales: agentmem engine calibrate makes them")
    return decoder


def grouped(kernels: Kernels | None) -> Kernels:
    """The native kernels with an int8 prefill; UsageError where they are not in use."""
    from agentmem.engine.kernels import native

    if kernels is None or not kernels.name.startswith("native"):
        raise UsageError("the mode int8+group64 runs on the native kernels only")
    return native.NativeKernels(kernels.invariant, "group64")


def runnable(names: Sequence[str], kernels: Kernels) -> list[str]:
    """Those of the modes that these kernels have."""
    native = kernels.name.startswith("native")
    return [name for name in names if native or not MODES[name].grouped]


def measure(
    path: Path,
    names: Sequence[str],
    windows: Sequence[Sequence[int]],
    calibration: Calibration | None = None,
    kernels: Kernels | None = None,
    on_progress: Callable[[str, int], None] | None = None,
) -> list[ModeLoss]:
    """Each mode's perplexity on the same windows, one model in memory at a time.

    Progress is told as mode and tokens run. Losses are against bf16, which has to come first.
    """
    rows: list[ModeLoss] = []
    base: Perplexity | None = None
    longest = max(map(len, windows))
    for name in names:
        decoder = load_mode(path, name, calibration, kernels)
        check_window(longest, decoder.config.window)
        started = time.monotonic()
        told = None if on_progress is None else _told(on_progress, name)
        found = perplexity(Text(decoder, longest, MODES[name].kv), windows, told)
        seconds = time.monotonic() - started
        base = found if name == BASE else base
        loss = None if base is None else found.loss_over(base)
        size = weights_bytes(decoder.weights)
        row = ModeLoss(
            name, found.value, found.nll, found.tokens, loss, size, seconds, decoder.notes
        )
        rows.append(row)
    return rows


def check_window(longest: int, window: int) -> None:
    """UsageError for contexts longer than any that the model was made for."""
    if longest > window:
        raise UsageError(f"contexts of {longest} tokens; this model's window is {window}")


def weights_bytes(weights: DecoderWeights) -> int:
    """Bytes of every matrix once, as a pass over one row reads them."""
    matrices: list[Weight] = [weights.embedding, *(matrix for _, matrix in linears(weights))]
    if weights.head is not weights.embedding:
        matrices.append(weights.head)
    return sum(matrix.size_bytes for matrix in matrices)


def _told(on_progress: Callable[[str, int], None], name: str) -> Callable[[int], None]:
    return lambda tokens: on_progress(name, tokens)
