"""Static FP8 models end to end: fused against unfused, calibrations, checkpoints, fall-backs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from agentmem.engine.kernels import native as built
from agentmem.engine.kernels import plan
from agentmem.engine.kernels.base import RoundingOrder
from agentmem.engine.kernels.torch_backend import TorchKernels
from agentmem.engine.kernels.weights import QuantisedActivation
from agentmem.engine.loader import load_decoder
from agentmem.engine.models.alone import Alone
from agentmem.engine.models.decoder import Decoder
from agentmem.engine.quant.activations import activate, linears
from agentmem.engine.quant.calibration import Calibration
from agentmem.engine.quant.eligible import Runtime
from agentmem.engine.quant.measure import ranges
from agentmem.errors import DataError
from agentmem.modelfiles.fetch import is_fetched, resolve
from tests.engine.quant.folders import LAYERS, compressed, native, save, save_plain

PROMPT = [7, 200, 31, 31, 64, 128, 5, 90]


class Counting(TorchKernels):
    """Counts fused norms, and plain ones of a fused model."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = 0

    def norm_quant(
        self,
        x: Tensor,
        weight: Tensor,
        eps: float,
        scale: Tensor,
        order: RoundingOrder,
        delta: Tensor | None = None,
    ) -> QuantisedActivation:
        self.fused += 1
        return super().norm_quant(x, weight, eps, scale, order, delta)


def static_model(
    path: Path,
    calibration: Calibration | None,
    runtime: Runtime | None = None,
    order: RoundingOrder = "round-first",
) -> tuple[Decoder, Counting]:
    loaded = load_decoder(path, "fp8")
    made = activate(loaded.config, loaded.weights, torch.bfloat16, calibration, runtime)
    kernels = Counting()
    decoder = Decoder(
        loaded.config,
        made.weights,
        kernels,
        dtype=torch.bfloat16,
        residual=made.residual,
        order=order,
        notes=made.notes,
    )
    return decoder, kernels


def calibrated(path: Path, prompt: list[int] = PROMPT) -> Calibration:
    found = ranges(load_decoder(path, "bf16"), [prompt * 4])
    return Calibration("w", found.scales(), 100.0, len(prompt) * 4, "test")


def greedy(decoder: Decoder, prompt: list[int], count: int) -> tuple[list[int], Tensor]:
    """Tokens chosen, and the logits of every step."""
    alone = Alone(decoder, len(prompt) + count)
    logits = [alone.run(torch.tensor(prompt), last_only=True)]
    tokens = [int(logits[0].argmax())]
    while len(tokens) < count:
        logits.append(alone.run(torch.tensor(tokens[-1:])))
        tokens.append(int(logits[-1].argmax()))
    return tokens, torch.cat(logits).float()


def compare_orders(path: Path, calibration: Calibration, prompt: list[int], count: int) -> None:
    """C25. The other order is nearer than what FP8 itself takes from the model."""
    fused, kernels = static_model(path, calibration)
    plain, untouched = static_model(path, calibration, Runtime(kernel=False))
    other, others = static_model(path, calibration, order="no-round")
    tokens, logits = greedy(fused, prompt, count)
    passes = 2 * fused.config.layers * count
    expected, unfused = greedy(plain, prompt, count)
    assert tokens == expected
    assert torch.equal(logits, unfused)
    assert (kernels.fused, untouched.fused) == (passes, 0)
    ids = torch.tensor(prompt)
    far, near = (Alone(decoder, len(prompt)).run(ids).float() for decoder in (other, fused))
    assert others.fused == 2 * fused.config.layers
    exact = Alone(load_decoder(path, "bf16"), len(prompt)).run(ids).float()
    lost = spread(near - exact, exact)
    assert 0 < spread(far - near, exact) < lost < 0.3


def spread(error: Tensor, of: Tensor) -> float:
    """Root mean square of an error, relative to how far logits lie apart."""
    return float(error.square().mean().sqrt() / of.std())


def test_fused_and_unfused_models_say_the_same(tmp_path: Path) -> None:
    save_plain(tmp_path)
    compare_orders(tmp_path, calibrated(tmp_path), PROMPT, 24)


@pytest.mark.slow
def test_fused_and_unfused_say_the_same_on_a_real_model() -> None:
    if not is_fetched("smollm2-135m"):
        pytest.skip("needs `agentmem models pull smollm2-135m`")
    path = resolve("smollm2-135m")
    prompt = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
    compare_orders(path, calibrated(path, prompt), prompt, 24)


@pytest.mark.parametrize(
    ("config", "scales"),
    [
        (native(), "tensor"),
        (compressed("tensor", True), "tensor"),
        (compressed("channel", True), "channel"),
    ],
    ids=["native", "compressed tensor", "compressed channel"],
)
def test_a_static_checkpoint_runs_fused_by_its_own_scales(
    config: dict[str, object], scales: str, tmp_path: Path
) -> None:
    stored = save(tmp_path, config, scales, True)
    decoder = load_decoder(tmp_path, "fp8")
    assert decoder.notes == () and decoder.residual == torch.bfloat16
    for layer, weights in enumerate(decoder.weights.layers):
        assert weights.fuse_attn_norm and weights.fuse_ffn_norm
        at = f"model.layers.{layer}.self_attn."
        assert weights.qkv.input_scale is not None
        largest = max(stored.input_scales[f"{at}{n}_proj"] for n in "qkv")
        assert weights.qkv.input_scale.tolist() == pytest.approx([largest])
    exact = Alone(load_decoder(tmp_path, "fp32"), 8).run(torch.tensor(PROMPT))
    got = Alone(decoder, 8).run(torch.tensor(PROMPT)).float()
    assert torch.isfinite(got).all()
    assert got.shape == exact.shape


def test_the_norm_and_its_linear_share_one_scale_object(tmp_path: Path) -> None:
    save_plain(tmp_path)
    seen: list[tuple[int, int]] = []

    class Watching(TorchKernels):
        def linear(
            self, x: Tensor | QuantisedActivation, weight: object, bias: Tensor | None = None
        ) -> Tensor:
            if isinstance(x, QuantisedActivation):
                seen.append((id(x.scale), id(weight.input_scale)))  # type: ignore[attr-defined]
            return super().linear(x, weight, bias)  # type: ignore[arg-type]

    decoder = load_decoder(tmp_path, "fp8", kernels=Watching(), calibration=calibrated(tmp_path))
    Alone(decoder, 8).run(torch.tensor(PROMPT))
    assert len(seen) == 2 * LAYERS and all(a == b for a, b in seen)


def test_the_native_kernels_run_the_same_model(tmp_path: Path) -> None:
    if built.WHY_NOT:
        pytest.skip(built.WHY_NOT)
    save_plain(tmp_path)
    calibration = calibrated(tmp_path)
    kernels = built.kernels_for(False)
    fused = load_decoder(tmp_path, "fp8", kernels=kernels, calibration=calibration)
    active = fused.weights.layers[0]
    assert active.fuse_attn_norm and active.down.input_scale is not None
    assert not plan.takes(fused), "a plan would leave out the quantisation before out and down"
    torch_made, _ = static_model(tmp_path, calibration)
    ids = torch.tensor(PROMPT)
    got, expected = (Alone(decoder, 8).run(ids).float() for decoder in (fused, torch_made))
    exact = Alone(load_decoder(tmp_path, "bf16"), 8).run(ids).float()
    assert spread(got - expected, exact) < spread(expected - exact, exact)
    plain = load_decoder(tmp_path, "fp8", kernels=kernels)
    made = activate(plain.config, plain.weights, torch.bfloat16, calibration, Runtime(kernel=False))
    unfused = Decoder(
        plain.config, made.weights, kernels, dtype=torch.bfloat16, residual=made.residual
    )
    assert not unfused.weights.layers[0].fuse_attn_norm
    assert torch.equal(Alone(unfused, 8).run(ids).float(), got)


def test_norms_that_bf16_cannot_hold_fall_back_and_say_so(tmp_path: Path) -> None:
    save_plain(tmp_path, norms=torch.float32)
    decoder = load_decoder(tmp_path, "fp8", calibration=calibrated(tmp_path))
    assert decoder.residual == torch.float32
    assert not any(layer.fuse_attn_norm or layer.fuse_ffn_norm for layer in decoder.weights.layers)
    assert len(decoder.notes) == 1 and "weight is float32" in decoder.notes[0]


def test_the_invariant_mode_falls_back_to_the_same_numbers(tmp_path: Path) -> None:
    save_plain(tmp_path)
    calibration = calibrated(tmp_path)
    invariant = load_decoder(tmp_path, "fp8", kernels=TorchKernels(True), calibration=calibration)
    assert "batch-invariant" in invariant.notes[0] and invariant.residual == torch.bfloat16
    whole = Alone(invariant, 8).run(torch.tensor(PROMPT))
    alone = Alone(invariant, 8)
    pieces = torch.cat([alone.run(torch.tensor([token])) for token in PROMPT])
    assert torch.equal(whole, pieces)


def test_without_scales_nothing_is_static(tmp_path: Path) -> None:
    save_plain(tmp_path)
    decoder = load_decoder(tmp_path, "fp8")
    assert decoder.residual == torch.float32 and decoder.notes == ()
    assert all(matrix.input_scale is None for _, matrix in linears(decoder.weights))


def test_a_calibration_that_lacks_a_linear_is_refused(tmp_path: Path) -> None:
    save_plain(tmp_path)
    whole = calibrated(tmp_path)
    part = {name: scale for name, scale in whole.scales.items() if name != "blk.1.down"}
    with pytest.raises(DataError, match=r"blk\.1\.down"):
        load_decoder(tmp_path, "fp8", calibration=replace(whole, scales=part))
