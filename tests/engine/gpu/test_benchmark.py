"""What the GPU benchmark says and does where there is no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_kernels as bench

ROOT = Path(__file__).resolve().parents[3]
GAINS = {
    512: (1.90, 1.51),
    1024: (1.38, 1.70),
    2048: (1.66, 1.52),
    4096: (1.66, 1.66),
    8192: (2.24, 1.81),
    16384: (2.31, 2.00),
}


def rows() -> list[bench.Row]:
    norm = bench.Row(
        "norm + quant", "512 x 4096", 0.002, 0.005, "two kernels", 6_000_000, bench.reported(512)
    )
    return [norm, bench.Row("linear int8", "1 x 8 x 8", 0.5, 0.25, "torch bf16", 64)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_line_and_exit_code_3() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/gpu_kernels.py", "--json", "/nonexistent/file"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3 and done.stdout == ""
    assert done.stderr.startswith("gpu_kernels: ") and done.stderr.count("\n") == 1


def test_quoted_figures_give_the_quoted_gains() -> None:
    assert set(bench.REPORTED) == set(GAINS)
    for tokens, (h100, b200) in GAINS.items():
        # one of the reported gains is cut, not rounded
        assert bench.reported(tokens) == pytest.approx({"H100": h100, "B200": b200}, abs=0.011)
    assert bench.reported(100) is None


def test_ratios_and_bandwidth() -> None:
    norm, linear = rows()
    assert norm.ratio == 2.5 and norm.gb_per_s == 3000
    assert linear.ratio == 0.5
    assert bench.norm_bytes(2, 4096, False) == 2 * 4096 * 3 + 8192
    assert bench.norm_bytes(2, 4096, True) == 2 * 4096 * 7 + 8192


def test_the_table_shows_reported_gains_beside_ours() -> None:
    head, norm, linear = bench.table(rows()).splitlines()
    assert head.split()[:3] == ["work", "size", "ours"]
    assert norm.split()[-7:] == ["0.00500", "2.50", "3000", "1.90", "1.51", "two", "kernels"]
    assert linear.split()[-4:] == ["-", "-", "torch", "bf16"]


def test_json_carries_what_the_table_shows() -> None:
    card = {"name": "a card", "capability": "sm_90", "copy_gb_per_s": 3000}
    written = json.loads(json.dumps(bench.document(card, rows())))
    assert written["format"] == 1 and written["card"] == card
    first = written["rows"][0]
    assert (first["ratio"], first["gb_per_s"], first["other_ms"]) == (2.5, 3000, 0.005)
    assert first["reported"] == {"H100": 1.9, "B200": 1.51}
    assert written["rows"][1]["reported"] is None
