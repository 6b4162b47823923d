"""Intervals by resampling pairs, clustered by history; seeded, so that a figure can be had again.

With few histories there is nothing to resample them for: they are taken as given, and pairs are
resampled inside each. With enough of them whole histories are drawn, pairs and all.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
MIN_CLUSTERS = 5
"""Histories from which on whole histories are drawn."""
DRAWS = 4000
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Draws:
    """Sums of both sides and the number of pairs in each draw; arrays [draws]."""

    a: Floats
    b: Floats
    pairs: Floats
    over: Literal["histories", "pairs"]
    """What was drawn."""
    free: int
    """Degrees of freedom: things drawn less the groups they were drawn inside."""


def resample(a: Floats, b: Floats, histories: Sequence[str], seed: int, name: str) -> Draws:
    """Draws of paired values `a` and `b` [pairs]; `name` gives each quantity draws of its own."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    names, group = np.unique(np.asarray(histories, dtype=str), return_inverse=True)
    table = np.stack([a, b, np.ones_like(a)], axis=1)
    if len(names) >= MIN_CLUSTERS:
        sums = np.zeros((len(names), 3))
        np.add.at(sums, group, table)
        return _packed(_drawn(sums, rng), "histories", len(names) - 1)
    parts = [_drawn(table[group == i], rng) for i in range(len(names))]
    return _packed(np.sum(parts, axis=0), "pairs", len(a) - len(names))


def _drawn(rows: Floats, rng: np.random.Generator) -> Floats:
    """Sums [draws, columns] over as many rows as there are, drawn with replacement."""
    n = len(rows)
    picks = (rng.integers(0, n, (_CHUNK, n)) for _ in range(DRAWS // _CHUNK))
    parts = [rows[pick].sum(axis=1) for pick in picks]
    return np.concatenate(parts)


def _packed(sums: Floats, over: Literal["histories", "pairs"], free: int) -> Draws:
    return Draws(sums[:, 0], sums[:, 1], sums[:, 2], over, free)


def interval(values: Floats, free: int, confidence: float) -> tuple[float, float] | None:
    """Percentile interval widened for small samples; None with nothing to judge the spread by.

    Resampling n things understates their spread by sqrt((n - 1) / n) and knows nothing of
    Student's t, so the percentiles are taken further out (Hesterberg, The American Statistician
    69:371, 2015).
    """
    known = values[~np.isnan(values)]
    if free < 1 or not len(known):
        return None
    reach = student_t((1 + confidence) / 2, free) * math.sqrt((free + 1) / free)
    tail = NormalDist().cdf(-reach)
    # "lower" and "higher" keep an infinite ratio from turning its neighbours into NaN.
    low = np.quantile(known, tail, method="lower")
    high = np.quantile(known, 1 - tail, method="higher")
    return float(low), float(high)


def student_t(p: float, free: int) -> float:
    """Quantile of Student's t for p >= 0.5."""
    if free > 200:
        return NormalDist().inv_cdf(p)
    # With t = sqrt(free) tan(angle) the density is cos(angle) ** (free - 1), on a finite range.
    angle = np.linspace(0, math.pi / 2, 20001)
    density = np.cos(angle) ** (free - 1)
    steps = (density[1:] + density[:-1]) / 2
    below = np.concatenate([[0.0], np.cumsum(steps)])
    below = 0.5 + 0.5 * below / below[-1]
    return float(math.sqrt(free) * math.tan(np.interp(p, below, angle)))


def sign_test(differences: npt.NDArray[Any]) -> float:
    """Two-sided probability of signs at least as one-sided as these if both were as likely."""
    up, down = int((differences > 0).sum()), int((differences < 0).sum())
    n, most = up + down, max(up, down)
    tail = sum(math.comb(n, k) for k in range(most, n + 1))
    return min(1.0, 2 * tail / 2**n) if n else 1.0
