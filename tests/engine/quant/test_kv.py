"""Keys and values in 8 bits."""

from __future__ import annotations

import torch

from agentmem.engine.quant.kv import dequantise_rows, loss, quantise_rows


def test_a_row_keeps_half_a_step() -> None:
    torch.manual_seed(1)
    rows = torch.randn(3, 5, 64) * torch.logspace(-4, 3, 15).view(3, 5, 1)
    data, scale = quantise_rows(rows)
    assert data.dtype == torch.int8 and scale.shape == (3, 5)
    assert int(data.abs().amax()) == 127
    back = dequantise_rows(data, scale, torch.float32)
    assert bool(((back - rows).abs() <= scale[..., None] * 0.5 * (1 + 1e-5)).all())


def test_zeros_and_broken_rows() -> None:
    rows = torch.ones(3, 8)
    rows[0] = 0
    rows[1, 2] = torch.inf
    data, scale = quantise_rows(rows)
    back = dequantise_rows(data, scale, torch.bfloat16)
    assert not bool(back[0].any()) and bool(back[1].isnan().all())
    torch.testing.assert_close(back[2].float(), rows[2])


def test_the_loss_is_what_a_round_trip_does() -> None:
    torch.manual_seed(2)
    rows = torch.randn(200, 64)
    found = loss(rows)
    back = dequantise_rows(*quantise_rows(rows), torch.float32)
    error = (back - rows).norm(dim=1) / rows.norm(dim=1)
    assert abs(found.relative_max - float(error.max())) < 1e-6
    assert 0 < found.relative_rms < 0.01 and found.cosine_min > 0.9999
    assert loss(torch.zeros(2, 8)).relative_max == 0.0
