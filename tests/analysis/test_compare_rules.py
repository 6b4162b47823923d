"""`--fail-on`: what parses, what fires, and that garbage is one clear line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.analysis.compare import Line
from agentmem.analysis.compare_metrics import METRICS
from agentmem.analysis.compare_rules import outcome, parse
from agentmem.analysis.compare_verdict import Pairs, Terms, barred, judge
from agentmem.errors import UsageError

BY_KEY = {m.key: m for m in METRICS}
SYSTEMS = ("mem0", "bm25")


def line(system: str, key: str, a: object, b: object) -> Line:
    one, two = np.asarray(a, float), np.asarray(b, float)
    terms = Terms(0.1 if "seconds" in key else 0.0, 0.95, 0, True, key)
    judged = judge(BY_KEY[key], Pairs(one, two, ("h",) * len(one), 0, 0, 0), terms)
    return Line("B", system, system, BY_KEY[key], terms.margin, judged)


NOISE = np.random.default_rng(5).lognormal(0, 0.1, 20)
LINES = (
    line("mem0", "construction.seconds", np.ones(20), 1.3 * NOISE),
    line("bm25", "construction.seconds", np.ones(20), np.ones(20)),
    line("mem0", "generation.tokens", np.full(5, 50), [50, 50, 50, 50, 51]),
    line("bm25", "question.accuracy", np.ones(20), [0] * 10 + [1] * 10),
    Line("B", "bm25", "BM25", BY_KEY["retrieval.seconds"], 0.1, barred("different machine")),
)


def fired(text: str) -> list[str]:
    return [x.path for x in outcome(parse(text, SYSTEMS), LINES).fired]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("construction.seconds > +20%", ["mem0.construction.seconds"]),
        ("construction.seconds > 29%", []),
        ("observed construction.seconds > 25 %", ["mem0.construction.seconds"]),
        ("mem0.construction.seconds<=10%", []),
        ("bm25.construction.seconds <= 0%", ["bm25.construction.seconds"]),
        ("seconds>20%", ["mem0.construction.seconds"]),
        ("*.construction.seconds > 0.1", ["mem0.construction.seconds"]),
        ("mem0.generation.tokens > 0", ["mem0.generation.tokens"]),
        ("mem0.*.tokens > 0.3", []),
        ("tokens > 0.1%", ["mem0.generation.tokens"]),
        ("accuracy < -10%", ["bm25.question.accuracy"]),
        ("any better", []),
        ("any worse in mem0", ["mem0.construction.seconds", "mem0.generation.tokens"]),
        ("any worse in construction", ["mem0.construction.seconds"]),
        ("any worse in mem0.generation", ["mem0.generation.tokens"]),
        ("any not-comparable", ["bm25.retrieval.seconds"]),
    ],
)
def test_what_fires(text: str, paths: list[str]) -> None:
    assert fired(text) == paths


def test_any_worse_names_every_row() -> None:
    assert len(fired("any worse")) == 3


def test_what_cannot_be_compared_is_undecided_not_passed() -> None:
    found = outcome(parse("bm25.retrieval.seconds > 10%", SYSTEMS), LINES)
    assert (found.fired, found.asked, len(found.undecided)) == ((), 0, 1)


def test_times_without_an_interval_are_undecided() -> None:
    few = (line("mem0", "construction.seconds", np.ones(1), np.full(1, 9.0)),)
    found = outcome(parse("seconds > 10%", SYSTEMS), few)
    assert not found.fired and found.undecided
    assert outcome(parse("observed seconds > 10%", SYSTEMS), few).fired


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected e.g."),
        ("construction.seconds", "expected e.g."),
        ("construction.seconds > ", "expected e.g."),
        ("construction.secnds > 3", "did you mean 'seconds'"),
        ("constuction.seconds > 3", "did you mean 'construction'"),
        ("mem1.construction.seconds > 3", "no system 'mem1'; did you mean 'mem0'"),
        ("any wrse", "did you mean 'worse'"),
        ("any worse in nowhere.construction", "no system 'nowhere'"),
        ("__import__('os').system('x') > 1", "no phase"),
        ("seconds > 1e9", "expected e.g."),
        ("seconds > 1 and tokens > 1", "expected e.g."),
        ("seconds > " + "9" * 500, "expected e.g."),
    ],
)
def test_errors_are_one_line(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, SYSTEMS)
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


PIECES = st.sampled_from(
    ["any", "worse", "in", "mem0", "construction", "seconds", ".", "*", ">", "<=", "+20", "%", " "]
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=12).map("".join)))
def test_garbage_never_crashes(text: str) -> None:
    try:
        rule = parse(text, SYSTEMS)
    except UsageError as err:
        assert "\n" not in str(err)
    else:
        outcome(rule, LINES)
