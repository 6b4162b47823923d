"""Perplexity against slow references, and the modes on a tiny model."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from agentmem.engine.kernels.torch_backend import kernels_for
from agentmem.engine.loader import load_decoder
from agentmem.engine.models.alone import Alone
from agentmem.engine.quant import losses
from agentmem.engine.quant.calibrate import calibrate, text_windows
from agentmem.engine.quant.losses import Perplexity, contexts, nll, perplexity
from agentmem.engine.quant.measure import Text
from agentmem.engine.quant.modes import MODES, chosen, load_mode, measure, runnable
from agentmem.engine.quant.orders import lines, orders
from agentmem.errors import DataError, UsageError

TEXT = "On Monday the team met in Berlin; Tom brought cake, and nobody wrote the minutes. " * 2


class Even:
    """Every token of 50 is as likely as the others."""

    def start(self) -> None: ...

    def logits(self, tokens: Tensor) -> Tensor:
        return torch.zeros(len(tokens), 50)


def test_even_odds_have_the_perplexity_of_the_vocabulary() -> None:
    found = perplexity(Even(), [[1, 2, 3], [4, 5]])
    assert found.tokens == 3 and found.value == pytest.approx(50)


def test_nll_is_the_log_of_what_was_given_to_the_tokens() -> None:
    torch.manual_seed(1)
    logits, targets = torch.randn(37, 11), torch.randint(11, (37,))
    by_hand = 0.0
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        by_hand -= row[target] - math.log(sum(math.exp(score) for score in row))
    assert nll(logits, targets) == pytest.approx(by_hand, rel=1e-6)


def test_a_text_is_cut_into_windows_that_each_begin_as_the_model_wants() -> None:
    assert contexts([1, 2, 3, 4, 5], 3, None) == [[1, 2, 3], [4, 5]]
    assert contexts([1, 2, 3, 4, 5], 3, 9) == [[9, 1, 2], [9, 3, 4], [9, 5]]
    assert contexts([1, 2, 3], 2, None) == [[1, 2]]
    with pytest.raises(DataError, match="too short"):
        contexts([1], 4, None)


def test_losses_are_relative() -> None:
    base, worse = Perplexity(10, math.log(20)), Perplexity(10, math.log(21))
    assert worse.loss_over(base) == pytest.approx(0.05)
    assert base.loss_over(base) == 0.0


def test_chunks_make_no_difference(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = text_windows(model, TEXT, 120, 64)
    decoder = load_decoder(model, "fp32")
    whole = perplexity(Text(decoder, 64), windows)
    monkeypatch.setattr(losses, "CHUNK", 7)
    assert perplexity(Text(decoder, 64), windows).nll == pytest.approx(whole.nll, rel=1e-5)
    logits = Alone(decoder, 64).run(torch.tensor(windows[0])).double().log_softmax(dim=1)
    first = -sum(float(logits[i, t]) for i, t in enumerate(windows[0][1:])) / 63
    one = perplexity(Text(decoder, 64), windows[:1])
    assert one.tokens == 63 and one.nll == pytest.approx(first, rel=1e-5)


def test_every_mode_is_measured_against_bf16(model: Path) -> None:
    windows = text_windows(model, TEXT, 120, 64)
    told: list[tuple[str, int]] = []
    rows = measure(
        model,
        runnable(chosen("all"), kernels_for(False)),
        windows,
        calibrate(model, 64, TEXT),
        on_progress=lambda mode, tokens: told.append((mode, tokens)),
    )
    by_mode = {row.mode: row for row in rows}
    assert list(by_mode) == ["bf16", "int8", "fp8", "int4", "fp8+static", "kv-int8"]
    assert by_mode["bf16"].loss == 0.0
    errors = {mode: abs(row.loss or 0.0) for mode, row in by_mode.items()}
    assert 0 < errors["int8"] < errors["int4"] and 0 < errors["kv-int8"] < errors["int4"]
    assert by_mode["int8"].weights_bytes < 0.6 * by_mode["bf16"].weights_bytes
    assert by_mode["int4"].weights_bytes < by_mode["int8"].weights_bytes
    assert sum(tokens for mode, tokens in told if mode == "int4") == sum(map(len, windows))


def test_modes_are_named_or_refused(model: Path) -> None:
    assert chosen("int8, bf16,int8") == ["bf16", "int8"]
    assert set(chosen("all")) == set(MODES) - {"fp32"}
    for wrong in ("int9", "", "fp8,quick"):
        with pytest.raises(UsageError):
            chosen(wrong)
    assert "int8+group64" not in runnable(chosen("all"), kernels_for(False))
    with pytest.raises(UsageError, match="native kernels only"):
        load_mode(model, "int8+group64", kernels=kernels_for(False))
    with pytest.raises(DataError, match="needs scales"):
        load_mode(model, "fp8+static")


def test_orders_are_compared_and_told(model: Path) -> None:
    found = orders(model, 80, TEXT)
    assert (found.norms, found.fused, found.notes) == (4, 4, ())
    no_round, cast = found.gaps
    assert 0 < no_round.differing < 0.05 and no_round.steps_max == 1
    assert no_round.relative_rms == 0.0 and 0 < cast.relative_rms < 2**-7
    assert 0 < cast.differing < 0.2
    assert found.plain.tokens == found.no_round.tokens
    told = "\n".join(lines(found))
    assert "4 of 4 norms are fused" in told and "cast-first" in told and "transformers" in told
