"""Static activation scales: found, written, read again, refused where they do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from agentmem.engine.core import EngineCore
from agentmem.engine.kernels.torch_backend import TorchKernels
from agentmem.engine.kernels.weights import QuantisedActivation, Weight
from agentmem.engine.loader import load_decoder
from agentmem.engine.models.alone import Alone
from agentmem.engine.quant.activations import linears
from agentmem.engine.quant.calibrate import calibrate
from agentmem.engine.quant.calibration import Calibration, Ranges, load_calibration
from agentmem.engine.quant.own_text import own_text
from agentmem.errors import DataError, UsageError
from tests.engine.quant.folders import LAYERS

TEXT = "Anna moved to Tokyo in 2021. She is allergic to peanuts, and she likes long walks. " * 3


def made(**changes: object) -> Calibration:
    values = {"weights": "w" * 64, "scales": {"a": 0.5}, "percentile": 100.0, "tokens": 7}
    return Calibration(**(values | {"source": "test"} | changes))  # type: ignore[arg-type]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    one = made()
    path = one.save(tmp_path / "new" / "folder")
    assert path.name == "calibration.json"
    for place in (path, path.parent):
        assert load_calibration(place, one.weights) == one
    assert one.scale("a").dtype == torch.float32 and one.scale("a").tolist() == [0.5]
    assert one.digest == made(source="other").digest != made(scales={"a": 0.25}).digest
    with pytest.raises(DataError, match="knows no 'b'"):
        one.scale("b")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": 2}, "format 2"),
        ({"weights": "other"}, "was made for weights other"),
        ({"scales": {"a": 0.0}}, "not positive"),
        ({"scales": {"a": float("nan")}}, "not positive"),
        ({"scales": {"a": "much"}}, "no calibration"),
        ({"scales": {"a": "0.5"}}, "no calibration"),
        ({"scales": {"a": True}}, "no calibration"),
        ({"scales": {"a": 1e308}}, "not positive"),
        ({"scales": {"a": 1e-300}}, "not positive"),
        ({"scales": {"a": 0.75}}, "is damaged"),
        ({"scales": 3}, "no calibration"),
        ({"weights": 5}, "no calibration"),
        ({"surplus": 1}, "no calibration"),
        (None, "no calibration"),
    ],
    ids=str,
)
def test_a_file_that_does_not_fit_is_refused(
    change: dict[str, object] | None, reason: str, tmp_path: Path
) -> None:
    path = made().save(tmp_path)
    raw = json.loads(path.read_text())
    path.write_text("[" if change is None else json.dumps(raw | change))
    with pytest.raises(DataError, match=reason):
        load_calibration(tmp_path, "w" * 64)


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no calibration"):
        load_calibration(tmp_path / "nowhere", "w")


def test_ranges_cover_the_share_of_rows_that_was_asked_for() -> None:
    ranges = Ranges()
    rows = torch.arange(1.0, 101.0)[:, None] * torch.tensor([1.0, -2.0, 0.5])
    ranges.add("a", rows[:40])
    ranges.add("a", rows[40:])
    ranges.add("zero", torch.zeros(3, 4))
    assert ranges.scales() == {"a": 200.0 / 448, "zero": 1.0}
    assert ranges.scales(90)["a"] == 180.0 / 448
    with pytest.raises(DataError, match="percentile"):
        ranges.scales(0)
    ranges.add("a", torch.tensor([[torch.nan]]))
    with pytest.raises(DataError, match="not finite"):
        ranges.scales()


class Watching(TorchKernels):
    """Keeps the largest value that each matrix sees, found in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.largest: dict[int, float] = {}

    def linear(
        self, x: Tensor | QuantisedActivation, weight: Weight, bias: Tensor | None = None
    ) -> Tensor:
        assert isinstance(x, Tensor)
        seen = max(abs(float(value)) for value in x.flatten().tolist())
        self.largest[id(weight)] = max(seen, self.largest.get(id(weight), 0.0))
        return super().linear(x, weight, bias)


def test_scales_are_the_largest_values_of_a_text(model: Path) -> None:
    told: list[float] = []
    found = calibrate(model, 100, TEXT, on_progress=lambda _what, share: told.append(share))
    assert set(found.scales) == {
        f"blk.{i}.{p}" for i in range(LAYERS) for p in ("qkv", "out", "gate_up", "down")
    }
    watching = Watching()
    decoder = load_decoder(model, "bf16", kernels=watching)
    ids = [256, *TEXT.encode()[:100]]
    Alone(decoder, len(ids)).run(torch.tensor(ids))
    for name, matrix in linears(decoder.weights):
        assert found.scales[name] == pytest.approx(watching.largest[id(matrix)] / 448, rel=0.02)
    assert found.tokens == 101 and told == sorted(told) and told[-1] == 1.0


def test_without_a_text_the_model_writes_its_own_the_same_every_time(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentmem.engine.quant.calibrate.LENGTH", 24)
    one, two = (calibrate(model, 80) for _ in range(2))
    assert one == two and "own text" in one.source
    assert one.tokens == 72


def test_a_models_own_text_begins_as_given_and_has_no_banned_token(model: Path) -> None:
    starts = [[1, 2, 3], [4], [5, 6]]
    texts = own_text(load_decoder(model, "bf16"), starts, 20, banned=range(100, 259))
    for start, text in zip(starts, texts, strict=True):
        assert text[: len(start)] == start and len(text) == 20
        assert max(text) < 100
    decoder = load_decoder(model, "bf16")
    again = own_text(decoder, [*starts, [7]], 20, banned=range(100, 259))
    assert again[0] != again[3]


def test_an_engine_takes_a_calibration_of_its_weights_only(model: Path, tmp_path: Path) -> None:
    found = calibrate(model, 64, TEXT)
    found.save(tmp_path)
    engine = EngineCore.load(model, mode="fp8", threads=1, backend="torch", calibration=tmp_path)
    engine.close()
    assert engine.notes == ()
    layer = engine.decoder.weights.layers[0]
    assert layer.fuse_attn_norm and layer.qkv.input_scale is not None
    with pytest.raises(UsageError, match="serves the mode fp8"):
        EngineCore.load(model, mode="int8", threads=1, calibration=tmp_path)
    made().save(tmp_path)
    with pytest.raises(DataError, match="was made for weights"):
        EngineCore.load(model, mode="fp8", threads=1, calibration=tmp_path)
