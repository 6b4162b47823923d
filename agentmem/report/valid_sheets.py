"""Tables on what the figures are worth: completeness, lanes, caps, two truths, rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentmem.analysis.breakdown import CAP_BOUND_SHARE
from agentmem.analysis.checks import check_run
from agentmem.analysis.frames import frame
from agentmem.analysis.load import Run
from agentmem.analysis.validity import check_validity
from agentmem.analysis.validity_rows import validity_rows
from agentmem.analysis.verdict import Check
from agentmem.report import format as fmt
from agentmem.report.sheet import Column, Sheet, column, sheet

Runs = Sequence[tuple[str, Run]]
NAME = column("system", "title", fmt.text)
BROKEN, FLAGGED = "DOES NOT HOLD", "FLAGGED"
"""Verdicts that stand out in the page."""


def validity(runs: Runs) -> Sheet:
    return sheet(
        "validity_rows",
        "Can the rows be compared?",
        "Answered by: figures of different lanes are not compared. Cap-bound: kinds of call with "
        f"{100 * CAP_BOUND_SHARE:.0f} % or more of their replies cut off at the token cap; their "
        "lengths say more about the cap than about the system. Context cut: questions whose "
        "context did not fit the window. Set-up (imports, server starts) is in no other figure.",
        runs,
        validity_rows,
        [
            NAME,
            column("complete", "completeness", fmt.text),
            column("fidelity", "fidelity", fmt.text),
            column("answered by", "lane", fmt.text),
            column("cap-bound", "cap_bound", fmt.text),
            column("context cut", "context_cut"),
            column("time-outs", "timeouts"),
            column("set-up", "setup_s", fmt.seconds),
        ],
    )


def truths(runs: Runs) -> Sheet:
    return sheet(
        "truths",
        "Two truths side by side",
        "Tokens of answered LLM calls as the server's usage says (which the gateway books) and as "
        "the engine's own record says, over the calls that have one. Our count is of the reply's "
        "text alone, without the tokens that end it. Engine steps: the seconds of the engine's "
        "steps that belong to these calls; the shares of a step add up to it.",
        runs,
        validity_rows,
        [
            NAME,
            column("LLM calls", "chat_calls"),
            column("with an engine record", "engine_calls"),
            column("tokens, server", "usage_tokens"),
            column("tokens, engine", "engine_tokens"),
            column("calls that differ", "engine_mismatch"),
            column("output, server", "usage_output"),
            column("output, our count", "own_output"),
            column("engine steps", "step_share_s", fmt.seconds),
        ],
    )


def _rules(key: str, heading: str, note: str, runs: Runs, examine: Any, no: str) -> Sheet:
    says = {True: "holds", False: no, None: "not shown by one run"}

    def verdict(row: dict[str, Any]) -> str:
        return says[None if fmt.known(row["ok"]) is None else bool(row["ok"])]

    return sheet(
        key,
        heading,
        note,
        runs,
        lambda run: frame(examine(run), Check).astype({"ok": object}),
        [
            column("rule", "rule", fmt.text),
            column("says", "title", fmt.text),
            Column("verdict", verdict, False),
            column("examined", "detail", fmt.text),
        ],
        whole=True,
    )


def checks(runs: Runs) -> Sheet:
    note = "Each rule is examined on the run's own rows, as by `agentmem check`."
    return _rules("checks", "Accounting rules", note, runs, check_run, BROKEN)


def rules(runs: Runs) -> Sheet:
    note = (
        "A flagged rule is no accounting fault: the figures are right, and say less than they seem "
        "to. What one run cannot show is said so."
    )
    return _rules("validity", "Validity rules", note, runs, check_validity, FLAGGED)
