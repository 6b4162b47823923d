"""One quantity on two sides: the difference, its interval, and what may be said of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agentmem.analysis.bootstrap import Draws, Floats, interval, resample, sign_test
from agentmem.analysis.compare_metrics import FLOOR_S, Metric
from agentmem.analysis.compare_pairs import Key, Values

Verdict = Literal["better", "worse", "equal", "no difference shown", "not comparable"]
MIN_PAIRS = 5
"""Fewer pairs than this carry no verdict that rests on an interval."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Values of both sides for the keys that both have; arrays [pairs]."""

    a: Floats
    b: Floats
    histories: tuple[str, ...]
    failed: int
    """Keys left out because the unit or question failed on one side."""
    unknown: int
    """Keys left out because a side does not know the value."""
    single: int
    """Keys that one side does not have at all."""

    @classmethod
    def of(cls, a: Values, b: Values) -> Pairs:
        bad = a.failed | b.failed
        keys: list[Key] = [k for k in a.known if k in b.known and k not in bad]
        one, two = (np.array([v.known[k] for k in keys], dtype=float) for v in (a, b))
        known = ~(np.isnan(one) | np.isnan(two))
        everything = {*a.known, *b.known}
        return cls(
            one[known],
            two[known],
            tuple(str(k[0]) for k, keep in zip(keys, known, strict=True) if keep),
            failed=len(everything & bad),
            unknown=int((~known).sum()),
            single=len(everything - bad) - len(keys),
        )

    @property
    def differing(self) -> int:
        return int((self.a != self.b).sum())


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which terms a quantity is judged."""

    margin: float
    """Smallest effect of interest: relative, for scores absolute."""
    confidence: float
    seed: int
    fixed: bool
    """Both sides ran with fixed sampling: equal inputs give equal counts."""
    name: str
    """Names the draws of this quantity."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What came out. Differences are B less A per pair; changes are relative to A."""

    verdict: Verdict
    note: str
    pairs: int
    left_out: int
    differing: int
    over: str
    """What the interval was drawn over: histories or pairs; empty without one."""
    a: float | None
    b: float | None
    """Sums over the pairs."""
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    change: float | None
    """b / a - 1; None where A is zero or for scores."""
    change_low: float | None
    change_high: float | None


@dataclass(frozen=True, slots=True)
class Effect:
    """Point and interval on the scale of the verdict: log ratio, or difference of means."""

    point: float
    span: tuple[float, float] | None


def judge(metric: Metric, pairs: Pairs, terms: Terms) -> Judged:
    """Compare one quantity over its pairs."""
    if not len(pairs.a):
        return barred("no pair in common", pairs)
    if terms.fixed and not pairs.differing and metric.group in ("count", "size", "score"):
        return _equal(metric, pairs)
    draws = resample(pairs.a, pairs.b, pairs.histories, terms.seed, terms.name)
    scale = _difference if metric.group == "score" else _ratio
    effect = scale(pairs, draws, terms)
    verdict, note = _verdict(metric, pairs, terms, effect)
    total = float(pairs.a.sum()), float(pairs.b.sum())
    per_pair = _difference(pairs, draws, terms)
    low, high = per_pair.span or (None, None)
    change = effect if metric.group != "score" and total[0] else Effect(math.nan, None)
    return Judged(
        verdict,
        "; ".join(n for n in (note, _left_out(pairs)) if n),
        len(pairs.a),
        pairs.failed + pairs.unknown + pairs.single,
        pairs.differing,
        draws.over if per_pair.span else "",
        *total,
        per_pair.point,
        low,
        high,
        *(_relative(x) for x in (change.point, *(change.span or (math.nan, math.nan)))),
    )


def _equal(metric: Metric, pairs: Pairs) -> Judged:
    """Every pair equal where nothing varies by chance: no interval is needed."""
    total = float(pairs.a.sum())
    change = 0.0 if metric.group != "score" else None
    left, note = pairs.failed + pairs.unknown + pairs.single, _left_out(pairs)
    none = (None, None)
    return Judged("equal", note, len(pairs.a), left, 0, "", total, total, 0.0, *none, change, *none)


def barred(why: str, pairs: Pairs | None = None) -> Judged:
    """A quantity that cannot be compared."""
    left = pairs.failed + pairs.unknown + pairs.single if pairs else 0
    note = "; ".join(n for n in (why, _left_out(pairs) if pairs else "") if n)
    return Judged("not comparable", note, 0, left, 0, "", *[None] * 8)


def _relative(log: float) -> float | None:
    if math.isnan(log):
        return None
    return math.expm1(log) if log < 700 else math.inf


def _ratio(pairs: Pairs, draws: Draws, terms: Terms) -> Effect:
    """Log of the ratio of sums; zero to zero is no change."""
    with np.errstate(divide="ignore", invalid="ignore"):
        point = np.log(pairs.b.sum() / pairs.a.sum())
        drawn = np.log(draws.b / draws.a)
    drawn = np.where((draws.a == 0) & (draws.b == 0), 0.0, drawn)
    both_zero = not pairs.a.any() and not pairs.b.any()
    return Effect(0.0 if both_zero else float(point), _span(drawn, pairs, draws, terms))


def _span(drawn: Floats, pairs: Pairs, draws: Draws, terms: Terms) -> tuple[float, float] | None:
    return interval(drawn, draws.free, terms.confidence) if len(pairs.a) >= MIN_PAIRS else None


def _difference(pairs: Pairs, draws: Draws, terms: Terms) -> Effect:
    """Mean difference per pair."""
    drawn = (draws.b - draws.a) / draws.pairs
    point = float((pairs.b - pairs.a).mean())
    return Effect(point, _span(drawn, pairs, draws, terms))


def _verdict(metric: Metric, pairs: Pairs, terms: Terms, effect: Effect) -> tuple[Verdict, str]:
    exact = terms.fixed and (metric.exact or metric.group == "score")
    margin = terms.margin if metric.group == "score" else math.log1p(terms.margin)
    told = f"{pairs.differing} of {len(pairs.a)} pairs differ" if exact else ""
    signs = np.sign(pairs.b - pairs.a)
    if exact and metric.exact and abs(signs.sum()) == pairs.differing:
        # All that differ do so one way, and nothing here varies by chance.
        return _beyond(metric, effect.point, effect.point, margin), told
    if effect.span is None:
        return "no difference shown", "; ".join(
            t for t in (told, f"{len(pairs.a)} pairs are too few for an interval") if t
        )
    if metric.group == "score" and sign_test(pairs.b - pairs.a) > 1 - terms.confidence:
        return "no difference shown", f"{(signs > 0).sum()} up, {(signs < 0).sum()} down"
    if metric.group in ("time", "cpu") and abs((pairs.b - pairs.a).mean()) < FLOOR_S:
        return "no difference shown", f"less than {1000 * FLOOR_S:.0f} ms each"
    return _beyond(metric, *effect.span, margin), told or _width(effect.span, margin)


def _beyond(metric: Metric, low: float, high: float, margin: float) -> Verdict:
    more, less = low > margin, high < -margin
    if not more and not less:
        return "no difference shown"
    return "better" if more == metric.higher_is_better else "worse"


def _width(span: tuple[float, float], margin: float) -> str:
    """Tells two kinds of "no difference shown" apart: shown to be small, or not known."""
    if margin and -margin <= span[0] and span[1] <= margin:
        return "within the margin"
    return ""


def _left_out(pairs: Pairs) -> str:
    parts = {"failed": pairs.failed, "not known": pairs.unknown, "on one side only": pairs.single}
    return ", ".join(f"{n} {what}" for what, n in parts.items() if n)
