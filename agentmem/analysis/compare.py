"""Two or more runs, or repeats of runs, quantity by quantity: paired, with intervals, judged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agentmem.analysis.compare_facts import SPOILS, Differing, differing, sampling
from agentmem.analysis.compare_metrics import MARGINS, METRICS, Group, Metric
from agentmem.analysis.compare_pairs import Table, Values, averaged, values
from agentmem.analysis.compare_verdict import Judged, Pairs, Terms, barred, judge
from agentmem.analysis.energy import Band
from agentmem.analysis.load import Run
from agentmem.analysis.repeats import rounds
from agentmem.analysis.tables import title


@dataclass(frozen=True, slots=True)
class Side:
    """One run, or several repeats of one and the same run."""

    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        more = f" and {len(self.runs) - 1} more" if len(self.runs) > 1 else ""
        return f"{self.runs[0].name} ({self.runs[0].folder}){more}"


@dataclass(frozen=True, slots=True)
class Options:
    """Terms of a comparison."""

    margins: Mapping[Group, float] = field(default_factory=lambda: dict(MARGINS))
    confidence: float = 0.95
    seed: int = 0
    across: frozenset[str] = frozenset()
    """Facts that may differ because that is what is compared."""


@dataclass(frozen=True, slots=True)
class Line:
    """One quantity of one system, B against A."""

    against: str
    """Letter of the side that is compared with A."""
    system: str
    title: str
    metric: Metric
    margin: float
    judged: Judged

    @property
    def path(self) -> str:
        return f"{self.system}.{self.metric.key}"

    def as_dict(self) -> dict[str, Any]:
        """Flat, for JSON and CSV."""
        names = {"against": self.against, "system": self.system, "title": self.title}
        metric = {"phase": self.metric.room, "metric": self.metric.name, "group": self.metric.group}
        return names | metric | {"margin": self.margin} | asdict(self.judged)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All sides against the first."""

    sides: tuple[Side, ...]
    lines: tuple[Line, ...]
    facts: Mapping[str, tuple[Differing, ...]]
    """What differs from A, by the other side's letter."""
    options: Options


def letter(index: int) -> str:
    """Short name of the n-th side."""
    return chr(ord("A") + index) if index < 26 else f"R{index + 1}"


def compare(sides: Sequence[Side], options: Options | None = None) -> Comparison:
    """Compare every side with the first."""
    options = options or Options()
    lines: list[Line] = []
    facts: dict[str, tuple[Differing, ...]] = {}
    known = [_Known.of(side) for side in sides]
    for i, other in enumerate(known[1:], start=1):
        found = _facts(sides[0], sides[i])
        facts[letter(i)] = found
        lines += _lines(letter(i), known[0], other, found, options)
    return Comparison(tuple(sides), tuple(lines), facts, options)


def _facts(a: Side, b: Side) -> tuple[Differing, ...]:
    """Differences between any run of one side and any of the other, each said once."""
    found = [d for one in a.runs for two in b.runs for d in differing(one, two)]
    return tuple({(d.key, d.where): d for d in reversed(found)}.values())[::-1]


@dataclass(frozen=True, slots=True)
class _Known:
    """A side with the values of its systems read out."""

    side: Side
    systems: Mapping[str, tuple[Table, ...]]
    """Per system, one table of values for every repeat."""

    @classmethod
    def of(cls, side: Side) -> _Known:
        names = [s for s in side.runs[0].systems if all(s in run.systems for run in side.runs)]
        parts = [values(part) for run in side.runs for part in rounds(run)]
        # A reference may be asked in the first round only.
        return cls(side, {s: tuple(p[s] for p in parts if p.get(s)) for s in names})

    def value(self, system: str, key: str) -> Values | None:
        found = [table[key] for table in self.systems.get(system, ()) if key in table]
        whole = found and len(found) == len(self.systems[system])
        return averaged(found) if whole else None

    def drift(self, system: str, key: str) -> float:
        """Largest relative difference between two repeats of this side; 0 with one run."""
        sums = _common_sums([t[key] for t in self.systems[system] if key in t])
        return max(sums) / min(sums) - 1 if len(sums) > 1 and min(sums) > 0 else 0.0


def _common_sums(repeats: Sequence[Values]) -> list[float]:
    """Sum of each repeat over the keys that all know."""
    if len(repeats) < 2:
        return []
    known = [{k for k, v in r.known.items() if not math.isnan(v)} for r in repeats]
    keys = set.intersection(*known)
    return [math.fsum(r.known[k] for k in keys) for r in repeats]


def _lines(
    other: str, a: _Known, b: _Known, facts: Sequence[Differing], options: Options
) -> list[Line]:
    lines = []
    for system in dict.fromkeys([*a.systems, *b.systems]):
        run = (a if system in a.systems else b).side.runs[0]
        for metric in METRICS:
            margin = _margin(metric, system, a, b, options)
            judged = _judged(metric, system, a, b, facts, options, margin, other)
            if judged is not None:
                lines.append(Line(other, system, title(run, system), metric, margin, judged))
    return lines


def _judged(
    metric: Metric,
    system: str,
    a: _Known,
    b: _Known,
    facts: Sequence[Differing],
    options: Options,
    margin: float,
    other: str,
) -> Judged | None:
    one, two = a.value(system, metric.key), b.value(system, metric.key)
    if one is None and two is None:
        return None
    lacking = "A" if system not in a.systems else other if system not in b.systems else None
    if lacking:
        return barred(f"not in {lacking}")
    why = _barred_by(metric, system, facts, options)
    if why:
        return barred(why)
    if one is None or two is None:
        return barred(f"not known in {'A' if one is None else other}")
    fixed = all(sampling(run) == "fixed" for s in (a, b) for run in s.side.runs)
    terms = Terms(margin, options.confidence, options.seed, fixed, f"{system}.{metric.key}")
    return judge(metric, Pairs.of(one, two), terms)


def _barred_by(metric: Metric, system: str, facts: Sequence[Differing], options: Options) -> str:
    room = f"{system}.{metric.room}"
    found = [d for d in facts if metric.group in d.blocks and d.where in (None, room)]
    return "; ".join(_reason(d) for d in found if d.key not in options.across)


def _reason(fact: Differing) -> str:
    kind = "" if fact.key in SPOILS else "different "
    return f"{kind}{fact.key} ({fact.a} / {fact.b})"


def _margin(metric: Metric, system: str, a: _Known, b: _Known, options: Options) -> float:
    """The stated margin, or what repeats of one side or the energy model's band make it."""
    margins = [options.margins[metric.group]]
    if metric.group in ("time", "cpu", "energy"):
        sides = [s for s in (a, b) if s.value(system, metric.key) is not None]
        margins += [s.drift(system, metric.key) for s in sides]
    if metric.group == "energy":
        margins += [_band_width(run) for s in (a, b) for run in s.side.runs]
    return max(margins)


def _band_width(run: Run) -> float:
    """How far a modelled joule may be off, relative; 0 where joules were read from a counter."""
    band = Band.of(run.manifest)
    modelled = run.phases["energy_source"].eq("modelled").any()
    return band.high / band.low - 1 if band and modelled and band.low else 0.0
