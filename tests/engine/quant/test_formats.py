"""Weight formats against slow references written out value by value."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from agentmem.engine.kernels.weights import Weight
from agentmem.engine.quant import formats
from agentmem.engine.quant.formats import dequantise, join, quantise, reorder, to_e4m3
from agentmem.errors import DataError
from tests.engine.quant.cases import CASTS

BOUNDS = {"fp32": 0.0, "bf16": 2**-8, "int8": 1 / 254, "fp8": 1 / 16, "int4": 1 / 14}
"""Largest error: of the value itself for floating formats, else of the largest beside it."""


def matrix(rows: int = 6, columns: int = 128) -> Tensor:
    torch.manual_seed(rows * 1000 + columns)
    return torch.randn(rows, columns) * torch.logspace(-3, 2, rows)[:, None]


def test_a_float_becomes_the_right_e4m3_code() -> None:
    values = torch.tensor([value for value, _, _ in CASTS])
    codes = to_e4m3(values)
    assert codes.view(torch.uint8).tolist() == [code for _, code, _ in CASTS]
    meant = torch.tensor([stands for _, _, stands in CASTS])
    torch.testing.assert_close(codes.float(), meant, rtol=0, atol=0, equal_nan=True)


def test_every_e4m3_value_and_every_midpoint_rounds_to_nearest_even() -> None:
    codes = torch.arange(0x7F, dtype=torch.uint8)
    values = codes.view(formats.E4M3).float()
    assert torch.equal(to_e4m3(values).view(torch.uint8), codes)
    middle = (values[:-1] + values[1:]) / 2
    even = torch.where(codes[:-1] % 2 == 0, codes[:-1], codes[1:])
    assert torch.equal(to_e4m3(middle).view(torch.uint8), even)
    assert torch.equal(to_e4m3(-middle).view(torch.uint8), even | 0x80)
    for toward, expected in ((-1e9, codes[:-1]), (1e9, codes[1:])):
        near = torch.nextafter(middle, torch.tensor(toward))
        assert torch.equal(to_e4m3(near).view(torch.uint8), expected)


@pytest.mark.parametrize("format", ["fp32", "bf16", "int8", "fp8"])
def test_a_row_loses_no_more_than_its_format_must(format: str) -> None:
    x = matrix()
    weight = quantise(x, format)
    back = dequantise(weight)
    own = x.abs() if format in ("bf16", "fp8") else x.abs().amax(dim=1, keepdim=True)
    floor = 0.0 if weight.scale is None else 2.0**-10 * weight.scale[:, None]
    allowed = torch.maximum(own * BOUNDS[format] * (1 + 1e-6), torch.as_tensor(floor))
    assert bool(((back - x).abs() <= allowed).all())
    assert (weight.format, weight.rows, weight.columns) == (format, 6, 128)


@pytest.mark.parametrize("group", [32, 64])
def test_int4_keeps_to_the_layout_and_to_half_a_step(group: int) -> None:
    x = matrix()
    weight = quantise(x, "int4", group)
    assert weight.data.dtype == torch.uint8 and weight.data.shape == (6, 64)
    assert weight.scale is not None and weight.scale.shape == (6, 128 // group)
    assert weight.columns == 128 and weight.group == group
    assert weight.offset is not None and weight.offset.shape == weight.scale.shape
    assert weight.offset.dtype == torch.bfloat16
    assert weight.size_bytes == 6 * 64 + 6 * 128 // group * (4 + 2)
    by_hand = torch.empty_like(x)
    for row in range(6):
        for column in range(128):
            byte = int(weight.data[row, column // 2])
            nibble = byte & 15 if column % 2 == 0 else byte >> 4
            at = (row, column // group)
            by_hand[row, column] = (nibble - 8) * weight.scale[at] + weight.offset[at]
    assert torch.equal(dequantise(weight), by_hand)
    grouped = x.unflatten(1, (-1, group))
    span = grouped.amax(dim=2) - grouped.amin(dim=2)
    error = (by_hand.unflatten(1, (-1, group)) - grouped).square().mean(dim=2).sqrt()
    assert bool((error <= span / 30).all())
    assert float((error / span).mean()) < 0.02


def test_int4_never_does_worse_than_steps_from_the_smallest_to_the_largest_value() -> None:
    x = matrix(4, 64)
    error = (dequantise(quantise(x, "int4", 32)) - x).square().unflatten(1, (-1, 32)).sum(dim=2)
    groups = x.unflatten(1, (-1, 32))
    low, high = groups.amin(dim=2, keepdim=True), groups.amax(dim=2, keepdim=True)
    step = (high - low) / 15
    plain = (((groups - low) / step).round() * step + low - groups).square().sum(dim=2)
    rounded = 32 * (low.abs() + high.abs())[..., 0].square() * 2**-18  # the offset, to bf16
    assert bool((error <= plain + rounded).all())


@pytest.mark.parametrize("used", [(0, 15), (0, 13), (2, 15), (5, 5)])
def test_int4_finds_the_grid_of_a_file_in_four_bits(used: tuple[int, int]) -> None:
    torch.manual_seed(7)
    codes = torch.randint(used[0], used[1] + 1, (8, 3, 32)).float()
    codes[..., 0], codes[..., 1] = used
    step = (torch.rand(8, 3, 1) * 0.02 + 0.001).half().float()
    lowest = (-8 * step + torch.randn(8, 3, 1) * step).half().float()
    x = (codes * step + lowest).flatten(1)
    error = (dequantise(quantise(x, "int4")) - x).abs().unflatten(1, (3, 32))
    assert bool((error <= step * 0.02).all())


def test_matrices_without_offsets_stay_what_they_were() -> None:
    weight = quantise(matrix(), "int4")
    plain = replace(weight, offset=None)
    assert weight.scale is not None and weight.offset is not None
    offset = weight.offset.float().repeat_interleave(32, dim=1)
    nibbles = torch.stack((weight.data & 15, weight.data >> 4), 2).flatten(1).float() - 8
    scaled = nibbles * weight.scale.repeat_interleave(32, dim=1)
    assert torch.equal(dequantise(plain), scaled)
    assert torch.equal(dequantise(weight), scaled + offset)
    assert join([plain, plain]).offset is None
    with pytest.raises(DataError, match="one format"):
        join([plain, weight])


@pytest.mark.parametrize("format", ["int8", "fp8", "int4"])
def test_zeros_stay_zeros_and_pieces_make_no_difference(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = matrix()
    x[2] = 0
    whole = quantise(x, format)
    assert not bool(dequantise(whole)[2].any())
    monkeypatch.setattr(formats, "_PIECE", 200)
    pieces = quantise(x, format)
    assert torch.equal(raw(pieces.data), raw(whole.data))
    assert pieces.scale is not None and whole.scale is not None
    assert torch.equal(pieces.scale, whole.scale)
    assert (pieces.offset is None) == (format != "int4")
    assert torch.equal(dequantise(pieces), dequantise(whole))


def raw(data: Tensor) -> Tensor:
    return data.view(torch.uint8)


@pytest.mark.parametrize("format", ["int8", "fp8", "int4"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_refused(format: str, bad: float) -> None:
    x = matrix()
    x[3, 5] = bad
    with pytest.raises(DataError, match="not finite"):
        quantise(x, format)


@pytest.mark.parametrize(("columns", "group"), [(100, 32), (96, 64), (64, 16)])
def test_int4_refuses_groups_that_do_not_fit(columns: int, group: int) -> None:
    with pytest.raises(DataError, match="int4 groups"):
        quantise(matrix(2, columns), "int4", group)


@pytest.mark.parametrize("format", ["bf16", "int8", "fp8", "int4"])
def test_joined_and_reordered_matrices_keep_every_value(format: str) -> None:
    parts = [matrix(rows, 64) for rows in (4, 2, 6)]
    fused = join([quantise(part, format) for part in parts])
    values = torch.cat([dequantise(quantise(part, format)) for part in parts])
    assert torch.equal(dequantise(fused), values)
    order = torch.randperm(12)
    assert torch.equal(dequantise(reorder(fused, order)), values[order])


def test_a_fused_matrix_takes_the_largest_input_scale() -> None:
    def part(scale: Tensor | None) -> Weight:
        plain = quantise(matrix(4, 64), "fp8")
        return Weight("fp8", plain.data, plain.scale, input_scale=scale)

    fused = join([part(torch.tensor(0.25)), part(torch.tensor([0.5])), part(torch.tensor(0.125))])
    assert fused.input_scale is not None and fused.input_scale.tolist() == [0.5]
    assert join([part(torch.tensor(0.25)), part(None)]).input_scale is None
    with pytest.raises(DataError, match="one format"):
        join([part(None), quantise(matrix(4, 64), "int8")])
