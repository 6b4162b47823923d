"""`agentmem compare` as a command: tables, files, conditions and exit codes."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agentmem.cli.main import main
from tests.analysis.build_run import HOSTILE, write_run
from tests.analysis.planted import slower


@pytest.fixture(scope="module")
def a(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_run(tmp_path_factory.mktemp("runs") / "a"))


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Another run with the very same figures."""
    return str(write_run(tmp_path_factory.mktemp("runs") / "twin"))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> str:
    systems = {"mem0": {"title": f"Mem0 {HOSTILE}", "taxonomy": {}}}
    folder = tmp_path_factory.mktemp("runs") / "slow"
    return str(write_run(folder, slower("generation", 1.5, "bm25"), {"systems": systems}))


def test_one_run_against_its_equal_passes(
    a: str, twin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", a, twin, "--fail-on", "any worse", "--fail-on", "tokens > 0"]) == 0
    out = capsys.readouterr().out
    assert "no difference shown" in out and " worse" not in out.split("Better or worse")[0]
    assert "passed: any worse" in out and "passed: tokens > 0" in out


def test_the_table_fits_eighty_columns(
    a: str, slow: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["compare", a, slow]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    (line,) = [x for x in out.splitlines() if x.startswith("generation") and "worse" in x]
    assert "+50 %" in line and "…" in line and " 10 " in line
    assert "2 worse" in out


def test_a_condition_that_fires_is_named_and_exits_7(
    a: str, slow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    conditions = ["bm25.generation.seconds > +20%", "mem0.generation.tokens > 0"]
    arguments = [x for c in conditions for x in ("--fail-on", c)]
    assert main(["compare", a, slow, *arguments]) == 7
    out = capsys.readouterr().out
    assert "FAILED: bm25.generation.seconds > +20%" in out
    assert "passed: mem0.generation.tokens > 0" in out


@pytest.mark.slow
def test_a_condition_that_cannot_be_decided_exits_8(
    a: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = str(write_run(tmp_path, changes={"machine": {"cpu": "another"}}))
    condition = ["--fail-on", "construction.seconds > 10%"]
    assert main(["compare", a, other, *condition]) == 8
    told = capsys.readouterr().out
    assert "NOT DECIDED" in told and "different machine" in told
    assert main(["compare", a, other, *condition, "--across", "machine"]) == 8, "four units"
    assert main(["compare", a, other, "--fail-on", "question.seconds > 10%", *ACROSS]) == 0


ACROSS = ("--across", "machine")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--fail-on", "consruction.seconds > 3"], "did you mean 'construction'"),
        (["--fail-on", "mem1.construction.seconds > 3"], "did you mean 'mem0'"),
        (["--margin", "tme=3%"], "did you mean 'time'"),
        (["--margin", "time=-3%"], "expected a percentage"),
        (["--margin", "time=nan"], "expected a percentage"),
        (["--across", "modell"], "did you mean 'model'"),
        (["--confidence", "100"], "--confidence"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    a: str, twin: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", a, twin, *arguments]) == 2
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1


def test_runs_that_are_not_there(a: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", a]) == 2
    assert main(["compare", a, "/nowhere"]) == 3
    assert "not a run folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "A", "A"],
        ["compare", "A,A", "twin"],
        ["compare", "twin", "A,twin/"],
        ["report", "A", "A"],
        ["report", "twin", "link"],
        ["check", "--same", "A", "A"],
    ],
)
def test_one_run_given_twice_is_refused(
    a: str, twin: str, arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(twin)
    names = {"A": a, "twin": twin, "link": str(tmp_path / "link")}
    assert main([re.sub(r"\b(A|twin|link)\b", lambda m: names[m[1]], x) for x in arguments]) == 2
    told = capsys.readouterr()
    assert "the same run is given twice" in told.err and told.err.count("\n") == 1
    assert not told.out and not (Path(a) / "report").exists()


def test_json_is_json_and_nothing_else(
    a: str, slow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", a, slow, "--json", "--fail-on", "any worse"]) == 7
    told = capsys.readouterr()
    value = json.loads(told.out)
    worse = [r for r in value["rows"] if r["verdict"] == "worse"]
    assert {(r["system"], r["phase"]) for r in worse} == {
        ("bm25", "generation"),
        ("bm25", "question"),
    }
    assert value["conditions"][0]["fired"] == [
        "B:bm25.generation.seconds",
        "B:bm25.question.seconds",
    ]
    assert "FAILED: any worse" in told.err


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [v or "" for n, v in attrs if n in ("src", "srcset", "href")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.slow
def test_the_files(a: str, twin: str, slow: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["compare", f"{a},{twin}", slow, "--out", str(out), "--fail-on", "any worse"]) == 7
    page = Page((out / "compare.html").read_text(encoding="utf-8"))
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert all(s.startswith("data:image/svg+xml;base64,") for s in page.sources)
    text = " ".join(page.words)
    assert HOSTILE in text and "B against A" in text and "FIRED" in text
    assert {p.name for p in (out / "figures").iterdir()} == {"changes_B.png", "f2_tradeoff.png"}
    rows = list(csv.DictReader((out / "tables" / "compare_B.csv").open(encoding="utf-8")))
    seen = {(r["system"], r["phase"], r["metric"]): r for r in rows}
    assert seen["bm25", "generation", "seconds"]["verdict"] == "worse"
    assert float(seen["bm25", "generation", "seconds"]["change"]) == pytest.approx(0.5)
    markdown = (out / "compare.md").read_text(encoding="utf-8")
    assert "| BM25 | generation | seconds |" in markdown and "<script" not in markdown


def test_files_that_cannot_be_written(
    a: str, twin: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["compare", a, twin, "--out", str(tmp_path / "file" / "x")]) == 2
    assert "cannot write the comparison" in capsys.readouterr().err
