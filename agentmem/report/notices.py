"""What a reader must know before using a figure of a run, the gravest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from agentmem.analysis.breakdown import CAP_BOUND_SHARE
from agentmem.analysis.checks import check_run, failed
from agentmem.analysis.load import Run
from agentmem.analysis.tables import title
from agentmem.analysis.validity import check_validity
from agentmem.report import format as fmt

SAID = {
    "V5": "Wall time does not split up",
    "V7": "Two lanes of answers",
    "V8": "Time-outs",
    "V9": "The machine was busy",
    "V10": "Not as published",
}
"""What a flagged rule means, for the rules that have no line of their own."""


def warnings(run: Run) -> tuple[str, ...]:
    """One line each; empty for a run with nothing to say against it."""
    flagged = {c.rule: c.detail for c in check_validity(run) if c.ok is False}
    return (
        *(f"Rule {c.rule} does not hold: {c.detail}" for c in failed(check_run(run))),
        *_state(run),
        *([f"{flagged['V1']}."] if "V1" in flagged else []),
        *([_capped(flagged["V3"])] if "V3" in flagged else []),
        *(f"{said}: {flagged[rule]}." for rule, said in SAID.items() if rule in flagged),
        *_cut(run),
        *_forced(run),
        *(str(n) for n in run.manifest.get("notes") or () if not _said(str(n), flagged)),
    )


def _said(note: str, flagged: Mapping[str, str]) -> bool:
    """The runner's note on contention, where V9 says the same."""
    return note.startswith("contention:") and "V9" in flagged


def _state(run: Run) -> Iterator[str]:
    status = run.manifest.get("status")
    if status != "complete":
        yield f"The run is {status}: some units or questions are missing from it."
    if replayed(run):
        yield (
            "Replies were replayed from a recording: calls, tokens and answers are the "
            "recording's; the times are the replay's and say nothing about a model."
        )


def replayed(run: Run) -> bool:
    """Whether a recording stood in for the model."""
    return (run.manifest.get("engine") or {}).get("kind") == "replay"


def _forced(run: Run) -> Iterator[str]:
    """Replies that an engine was made to produce, and those that took it other numbers of tokens.

    With another tokenizer than the recorded model's that is as it should be.
    """
    calls = run.calls[~run.calls["embeds"]]
    forced = [c.get("forced") is True for c in calls["engine"].map(_account)]
    texts = calls[pd.Series(forced, index=calls.index, dtype=bool)]
    if texts.empty:
        return
    then = [fmt.known((c.get("recorded") or {}).get("output_tokens")) for c in texts["engine"]]
    now = [fmt.known(n) for n in texts["output_tokens"]]
    known = [(a, b) for a, b in zip(then, now, strict=True) if a is not None and b is not None]
    other = sum(a != b for a, b in known)
    replies = "reply" if len(texts) == 1 else "replies"
    yield (
        f"An engine was made to produce {len(texts):,} recorded {replies}; {other:,} of them "
        "have another number of tokens here than when recorded."
    )


def _account(engine: object) -> Mapping[str, Any]:
    """The engine's own account of a call, empty where there is none."""
    return engine if isinstance(engine, Mapping) else {}


def _capped(detail: str) -> str:
    share = f"{100 * CAP_BOUND_SHARE:.0f} %"
    listed = detail.replace(" cap-bound", "")
    return f"Cap-bound ({share} or more of the replies cut off at the token cap): {listed}."


def _cut(run: Run) -> Iterator[str]:
    cut = run.queries[run.queries["cut_tokens"] > 0]
    for system, group in cut.groupby("system", sort=False):
        asked, cut_off = fmt.plural(len(group), "question"), group["cut_tokens"].mean()
        asked += " (all repeats)" if run.queries["repeat"].nunique() > 1 else ""
        yield (
            f"{title(run, str(system))}: the context did not fit the window for {asked}; "
            f"{fmt.count(cut_off)} tokens were left out on average."
        )
