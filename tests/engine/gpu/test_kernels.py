"""The Triton kernels without a GPU: interpreted, in any program order, and compiled ahead of time.

Triton is told at import whether it interprets, so each check runs in a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SATURATING = ["cvt.rn.satfinite.e4m3x2.f32"]
FEW = "add + norm + quant round first,quant,decode join"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="needs triton: pip install 'agentmem-profiler[gpu]'",
)


def python(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A process that is not part of this test run."""
    mine = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TRITON"))}
    mine |= {"OMP_NUM_THREADS": "1", **env}
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=ROOT, env=mine, capture_output=True, text=True, check=False)


def run_inside(which: str, marks: str) -> None:
    """The tests in device/, all of which must pass."""
    env = {"AGENTMEM_KERNELS": which}
    if which == "interpreter":
        env["TRITON_INTERPRET"] = "1"
    quiet = ("-W", "ignore::RuntimeWarning")
    done = python("-m", "pytest", "-q", *quiet, "-m", marks, str(HERE / "device"), **env)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@needs_triton
def test_in_the_interpreter() -> None:
    run_inside("interpreter", "not slow")


@needs_triton
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_more_in_the_interpreter() -> None:
    run_inside("interpreter", "slow")


@needs_triton
@pytest.mark.gpu
@pytest.mark.timeout(1800)
def test_on_a_device() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    run_inside("device", "slow or not slow")


def compiled(tmp_path: Path, *args: str) -> list[dict[str, Any]]:
    done = python("-m", "tests.engine.gpu.assemble", *args, TRITON_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows
    return rows


def check_code(row: dict[str, Any]) -> None:
    """Built, and e4m3 made only as it may be on its target."""
    assert row.get("bytes", 0) > 1000, row
    exact = row["target"] in ("sm_90", "sm_100", "sm_120")
    makes = row["e4m3"] and "quant" in row["kernel"]
    assert row["converts"] == (SATURATING if exact and makes else []), row


@needs_triton
def test_compiles_without_a_device(tmp_path: Path) -> None:
    rows = compiled(tmp_path, "sm_80,sm_89,sm_90,sm_100,sm_120", FEW)
    assert len(rows) == 15
    refused = [row for row in rows if row["target"] == "sm_80" and row["e4m3"]]
    assert len(refused) == 2
    for row in refused:
        assert row["error"] == "EngineError" and "sm_80 has no e4m3" in row["reason"]
    for row in rows:
        if row not in refused:
            check_code(row)


@needs_triton
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_100", "sm_120", "gfx942"])
def test_every_kernel_compiles(target: str, tmp_path: Path) -> None:
    rows = compiled(tmp_path, target)
    for row in rows:
        if target == "sm_80" and row["e4m3"]:
            assert "sm_80 has no e4m3" in row["reason"]
        else:
            check_code(row)
            products = row["kernel"].startswith(("product", "prefill", "decode "))
            if target != "gfx942" and products and "join" not in row["kernel"]:
                assert row["products"], f"{row['kernel']}: no matrix instruction"


@needs_triton
@pytest.mark.slow
def test_why_some_targets_convert_by_hand(tmp_path: Path) -> None:
    """sm_89 rounds twice when left to the compiler, sm_80 not at all."""
    rows = {row["target"]: row for row in compiled(tmp_path, "sm_89", "quant", "direct")}
    assert rows["sm_89"]["converts"] == ["cvt.rn.satfinite.e4m3x2.f16x2"]
