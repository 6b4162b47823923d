"""Which norms are fused: each condition alone turns it off, and says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from agentmem.cli.doctor import fused_rows
from agentmem.engine.quant.eligible import (
    LinearSite,
    NormSite,
    Runtime,
    plan,
    verdict,
)
from agentmem.engine.quant.formats import quantise

BF16 = torch.bfloat16
NORM = NormSite("rms", BF16, BF16, BF16, elements=64)
SCALE = torch.tensor([0.05])
LINEAR = LinearSite("fp8", "row", True, SCALE)


def test_the_plain_case_is_fused() -> None:
    assert verdict(NORM, LINEAR) == (True, "")
    assert verdict(NORM, replace(LINEAR, layout="tensor")).fuse
    assert verdict(replace(NORM, elements=None), LINEAR).fuse
    half = replace(
        NORM,
        weight_dtype=torch.float16,
        activation_dtype=torch.float16,
        residual_dtype=torch.float16,
    )
    assert verdict(half, LINEAR).fuse


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"kind": "gemma-rms"}, "gemma-rms"),
        ({"kind": "layer"}, "layer"),
        ({"elements": 0}, "empty"),
        ({"variance_size": 32}, "part of the row"),
        ({"cast_first": True}, "before it multiplies"),
        ({"weight_dtype": torch.float32}, "weight is float32"),
        ({"weight_dtype": torch.float16}, "weight is float16"),
        ({"residual_dtype": torch.float32}, "stream is float32"),
        ({"activation_dtype": torch.float32, "weight_dtype": torch.float32}, "are float32"),
        ({"consumers": 2}, "2 readers"),
        ({"consumers": 0}, "0 readers"),
    ],
    ids=str,
)
def test_a_norm_that_is_not_eligible_says_why(changed: dict[str, Any], reason: str) -> None:
    found = verdict(replace(NORM, **changed), LINEAR)
    assert not found.fuse and reason in found.reason


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"format": "bf16", "layout": "none", "static": False, "input_scale": None}, "is bf16"),
        ({"format": "int8"}, "is int8"),
        ({"layout": "block"}, "by block"),
        ({"layout": "mx"}, "by mx"),
        ({"layout": "packed"}, "by packed"),
        ({"static": False}, "no static scale"),
        ({"input_scale": None}, "is missing"),
        ({"input_scale": torch.ones(2)}, "2 elements"),
    ],
    ids=str,
)
def test_a_linear_that_is_not_eligible_says_why(changed: dict[str, Any], reason: str) -> None:
    found = verdict(NORM, replace(LINEAR, **changed))
    assert not found.fuse and reason in found.reason


def test_no_linear_and_the_runtime_count_too() -> None:
    assert verdict(NORM, None) == (False, "no linear follows")
    assert "batch-invariant" in verdict(NORM, LINEAR, Runtime(invariant=True)).reason
    assert "no fused kernel" in verdict(NORM, LINEAR, Runtime(kernel=False)).reason


def test_cast_first_norms_are_fused_only_when_asked_for() -> None:
    norm = replace(NORM, cast_first=True)
    assert not verdict(norm, LINEAR).fuse
    assert verdict(norm, LINEAR, Runtime(allow_cast_first=True)).fuse


def test_a_loaded_matrix_is_seen_as_it_is() -> None:
    dense = torch.randn(4, 64)
    fp8 = quantise(dense, "fp8")
    assert not verdict(NORM, LinearSite.of(fp8)).fuse
    assert verdict(NORM, LinearSite.of(replace(fp8, input_scale=SCALE))).fuse
    assert not verdict(NORM, LinearSite.of(quantise(dense, "bf16"))).fuse


def test_the_doctor_says_which_architectures_fuse_their_norms() -> None:
    rows = {what: (ready, how) for what, ready, how in fused_rows()}
    assert rows["fp8 norms: llama"][0] and rows["fp8 norms: qwen2"][0]
    ready, how = rows["fp8 norms: gemma3"]
    assert not ready and "no plain RMS norm" in how


def test_a_plan_names_what_is_fused_and_says_each_reason_once() -> None:
    gemma = replace(NORM, kind="gemma-rms")
    sites = [("a", NORM, LINEAR), ("b", gemma, LINEAR), ("c", gemma, LINEAR), ("d", NORM, None)]
    made = plan(sites)  # type: ignore[arg-type]
    assert made.fused == {"a"}
    assert len(made.notes) == 2
    assert made.notes[0].startswith("2 of 4 norms are not fused")
    assert plan([("a", NORM, LINEAR)]).notes == ()
