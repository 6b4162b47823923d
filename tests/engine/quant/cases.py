"""The acceptance cases of fused FP8 norms as plain data, for every backend's tests.

Bytes are e4m3fn codes in hex, one a value. Inputs are rounded to bf16 before use. `x` is what the
norm sees; with a `delta`, `x` is the residual stream that `delta` is added to in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

ROUND_FIRST, NO_ROUND = "round-first", "no-round"


@dataclass(frozen=True)
class NormCase:
    """One row through (add +) norm + static quantisation. `expected` maps an order to its bytes."""

    name: str
    x: tuple[float, ...]
    expected: dict[str, str]
    weight: tuple[float, ...] | None = None
    """None is ones."""
    scale: float = 1.0
    eps: float = 1e-6
    delta: tuple[float, ...] | None = None
    stream: tuple[float, ...] | None = None
    """What `x` holds afterwards, where a delta is added."""


def both(codes: str) -> dict[str, str]:
    """The same bytes in both rounding orders."""
    return {ROUND_FIRST: codes, NO_ROUND: codes}


ONES = (1.0, 1.0, 1.0, 1.0)
COUNT = (1.0, 2.0, 3.0, 4.0)
C11 = {
    "x": (-2.75, -1.625, 3.875, 2.125),
    "weight": (0.984375, 1.0625, 1.046875, 0.921875),
}

NORM_CASES = (
    NormCase("C1 scale 1", ONES, both("38383838")),
    NormCase("C1 scale 0.5", ONES, both("40404040"), scale=0.5),
    NormCase("C1 saturates", ONES, both("7e7e7e7e"), scale=1 / 512),
    NormCase("C2 saturates below", (-1.0,) * 4, both("fefefefe"), scale=1 / 512),
    NormCase("C3 zeros", (0.0,) * 4, both("00000000")),
    NormCase("C4 counting", COUNT, both("4f575b5f"), scale=0.05),
    NormCase("C6 weight stored less one", COUNT, both("4f575b5f"), weight=ONES, scale=0.05),
    NormCase(
        "C7 tie to even in the stream",
        (256.0, 1.0, 2.0, 3.0),
        both("622a2f32"),
        scale=0.05,
        delta=ONES,
        stream=(256.0, 2.0, 3.0, 4.0),
    ),
    NormCase(
        "C8 cancels",
        COUNT,
        both("00000000"),
        scale=0.05,
        delta=(-1.0, -2.0, -3.0, -4.0),
        stream=(0.0,) * 4,
    ),
    NormCase("C9 eps 1e-6", (1e-4,) * 4, both("40404040"), scale=0.05),
    NormCase("C9 eps 1e-5", (1e-4,) * 4, both("32323232"), scale=0.05, eps=1e-5),
    NormCase("C11 orders differ", **C11, expected={NO_ROUND: "b8b23c33", ROUND_FIRST: "b8b23c34"}),
    NormCase("C15 NaN spreads over its row", (1.0, nan, 1.0, 1.0), both("7f7f7f7f")),
    NormCase("C15 infinity is NaN, its row is zero", (1.0, inf, -1.0, 0.0), both("007f8000")),
    NormCase(
        "C15 NaN from the delta",
        ONES,
        both("7f7f7f7f"),
        delta=(0.0, 0.0, nan, 0.0),
        stream=(1.0, 1.0, nan, 1.0),
    ),
)

CASTS = (
    # value, code, what the code stands for
    (17.0, 0x58, 16.0),
    (18.0, 0x59, 18.0),
    (19.0, 0x5A, 20.0),
    (9.5, 0x52, 10.0),
    (1.0625, 0x38, 1.0),
    (1.1875, 0x3A, 1.25),
    (0.0, 0x00, 0.0),
    (-0.0, 0x80, 0.0),
    (2.0**-6, 0x08, 2.0**-6),
    (2.0**-9, 0x01, 2.0**-9),
    (2.0**-10, 0x00, 0.0),
    (3 * 2.0**-10, 0x02, 2.0**-8),
    (2.0**-10 * 1.01, 0x01, 2.0**-9),
    (447.0, 0x7E, 448.0),
    (448.0, 0x7E, 448.0),
    (449.0, 0x7E, 448.0),
    (464.0, 0x7E, 448.0),
    (480.0, 0x7E, 448.0),
    (1e9, 0x7E, 448.0),
    (inf, 0x7E, 448.0),
    (-449.0, 0xFE, -448.0),
    (-inf, 0xFE, -448.0),
    (nan, 0x7F, nan),
    (-nan, 0x7F, nan),
)
