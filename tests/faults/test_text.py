"""Texts that break programs, in a user's own conversation and in what the model says."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from agentmem.report import build
from agentmem.report.inert import cells
from tests.faults.conftest import MakeTrial
from tests.faults.stage import Trial, lost, said
from tests.faults.table import add

SYSTEMS = ("long_context", "bm25", "embedrag")
HTML = '</td><script>alert("x")</script><img src=x onerror=alert(1)>'
MARKDOWN = "[click](javascript:alert(1)) | ![x](http://example.org/x.png) `a` **b** # c"
FORMULAS = ("=HYPERLINK(A1)", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1+1")
SURROGATES = "half a sign \ud83d and half \udef6 of one"
TEXTS = {
    "1 MB turn": "The kayak is red. " * (1_000_000 // 18),
    "emoji": "Ann bought a \U0001f6f6 and a \U0001f469\u200d\U0001f469\u200d\U0001f467.",
    "right-to-left": "\u05e7\u05e0\u05d9\u05ea\u05d9 \u05e7\u05d9\u05d0\u05e7 \u202eevil\u202c",
    "NUL bytes": "a red\x00kayak\x00\x00",
    "terminal commands": "red \x1b[2J\x1b]0;title\x07 kayak",
    "HTML": HTML,
    "Markdown": MARKDOWN,
    "formulas": " ".join(FORMULAS),
}


def conversation(folder: Path, text: str, category: str = "plain") -> dict[str, Any]:
    """A workload of three sessions; the text is said, asked about, and is the answer."""
    turns = ["I bought a red kayak.", text, "It was dear."]
    sessions = [
        {"id": f"s{i}", "turns": [{"speaker": "Ann", "text": turn}]} for i, turn in enumerate(turns)
    ]
    short = text[:300]
    questions = [
        {"question": f"What is this: {short}?", "answers": [short], "category": category},
        {"question": "What colour is the kayak?", "answers": ["red"], "category": category},
    ]
    path = folder / "conversation.json"
    path.write_text(json.dumps({"user": "ann", "sessions": sessions, "questions": questions}))
    return {"name": "conversation", "path": str(path), "unit": "session", "tokenizer": "words-v1"}


def run_with(trial: MakeTrial, folder: Path, text: str, category: str = "plain") -> Trial:
    one: Trial = trial(systems=SYSTEMS, workload=conversation(folder, text, category))
    one.fake.behaviour.on_chat = lambda body: text[:200]
    return one


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_a_run_carries_any_text(name: str, trial: MakeTrial, tmp_path: Path) -> None:
    one = run_with(trial, tmp_path, TEXTS[name])
    told = one.go()
    assert told.code == 0, told.err
    assert one.broken() == []
    run = one.load()
    assert lost(run) == "nothing"
    assert all("\x1b" not in line for line in told.err)
    add("conversation and answers", name, "carried through", told.code, lost(run), "(none needed)")


def test_lone_surrogates(trial: MakeTrial, tmp_path: Path) -> None:
    """In a conversation they are named and refused; in a reply they are carried through."""
    refused = run_with(trial, tmp_path, SURROGATES).go()
    assert refused.code == 3
    assert refused.lines[-1].endswith("holds half of a surrogate pair, which is no text")
    add("conversation", "lone surrogates", "refused", 3, "nothing", refused.lines[-1])
    one: Trial = trial(systems=("scribe",))
    one.fake.behaviour.on_chat = lambda body: SURROGATES
    told = one.go()
    assert told.code == 0, told.err
    assert one.broken() == []
    assert lost(one.load()) == "nothing"
    add("replies", "lone surrogates", "carried through", 0, "nothing", "(none needed)")


def test_cells_of_a_spreadsheet() -> None:
    given = pd.DataFrame({"t": [*FORMULAS, "a=b", "\x00"], "n": range(7)})
    made = cells(given)
    assert made["t"].tolist() == [*(f"'{f}" for f in FORMULAS), "a=b", "\\x00"]
    assert made["n"].tolist() == list(range(7))


def test_reports_stay_inert(trial: MakeTrial, tmp_path: Path) -> None:
    """Everything hostile at once, through `run` and into every file of the report."""
    text = "\n".join([*FORMULAS, HTML, MARKDOWN, TEXTS["NUL bytes"], TEXTS["emoji"]])
    one = run_with(trial, tmp_path, text, category="=cmd|' /C calc'!A0")
    one.fake.behaviour.on_chat = lambda body: f"{text} {SURROGATES}"
    told = one.go()
    assert told.code == 0, told.err
    paths = build([one.out], one.out / "report")
    page = paths.html.read_text(encoding="utf-8")
    assert "<script" not in page and "<img src=x" not in page
    assert "&lt;script" in page
    markdown = paths.markdown.read_text(encoding="utf-8")
    assert "<script" not in markdown and "](javascript:" not in markdown
    for file in (page, markdown):
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff]", file)
    found = [cell for path in paths.csv for cell in cells_of(path)]
    assert "category: =cmd|' /C calc'!A0" in found
    assert not [c for c in found if c.lstrip(" ")[:1] in "=+-@\t\r" and c and not is_number(c)]
    assert said(["check", str(one.out)]).code == 0
    add("report", "HTML, Markdown, formulas", "inert in every file", 0, "nothing", "(none needed)")


def cells_of(path: Path) -> list[str]:
    with path.open(newline="", encoding="utf-8") as file:
        return [cell for row in csv.reader(file) for cell in row]


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
