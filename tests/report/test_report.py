"""The report's files: self-contained, inert, complete, and honest about what is not known."""

from __future__ import annotations

import csv
import importlib.resources
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

import agentmem
from agentmem.errors import DataError, UsageError
from agentmem.records import Call, Query, Row, Unit, Window
from agentmem.report import ReportPaths, build
from agentmem.report.answers import asked
from agentmem.report.console import summary
from agentmem.report.content import gather
from agentmem.report.figures import draw_all
from agentmem.report.html import html
from agentmem.report.markdown import markdown
from agentmem.report.notices import warnings
from agentmem.report.words import facts
from tests.analysis.build_run import HOSTILE, write_run
from tests.analysis.synth import begin_of, manifest, new_call


class Page(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids |= {value or "" for name, value in attrs if name == "id"}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def paths(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ReportPaths:
    return build([folder], tmp_path_factory.mktemp("out") / "report")


@pytest.fixture(scope="module")
def page(paths: ReportPaths) -> Page:
    return Page(paths.html.read_text(encoding="utf-8"))


def text_of(*runs: Path) -> str:
    """The page without its figures, which take most of the time."""
    return html(gather([agentmem.load(run) for run in runs]), ())


def test_nothing_is_fetched_and_nothing_runs(page: Page) -> None:
    assert not {"script", "link", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    fetched = [v for n, v in page.attributes if n in {"src", "srcset", "href", "action", "data"}]
    assert fetched and all(v.startswith(("data:image/svg+xml;base64,", "#")) for v in fetched)


def test_hostile_text_is_shown_and_inert(page: Page, paths: ReportPaths) -> None:
    assert HOSTILE in "".join(page.text)
    assert page.tags.count("img") == len(paths.png)
    raw = paths.html.read_text(encoding="utf-8")
    assert "<script" not in raw and "onerror=alert" in raw
    assert "url(" not in raw and "@import" not in raw


def test_hostile_names_stay_inert(tmp_path: Path) -> None:
    systems = {"bm25": {"title": HOSTILE, "taxonomy": {"store": HOSTILE}}}
    changes = {"systems": systems, "run_id": HOSTILE, "notes": [HOSTILE]}
    content = gather([agentmem.load(write_run(tmp_path, changes=changes))])
    page = Page(html(content, ()))
    assert not {"script", "img"} & set(page.tags)
    assert "".join(page.text).count(HOSTILE) > 5
    assert "<script" not in markdown(content, ())


@pytest.mark.slow
def test_hostile_names_can_be_drawn(tmp_path: Path) -> None:
    systems = {"bm25": {"title": f"$\\frac{{x}} {HOSTILE}"}}
    run = agentmem.load(write_run(tmp_path, changes={"systems": systems}))
    (drawing, *_) = draw_all(gather([run, run]))
    assert b"<script" not in drawing.svg["light"] and drawing.png.startswith(b"\x89PNG")


def test_links_inside_the_page_lead_somewhere(page: Page) -> None:
    targets = {v[1:] for n, v in page.attributes if n == "href"}
    assert targets <= page.ids


def test_every_part_is_there(page: Page, paths: ReportPaths) -> None:
    text = " ".join(" ".join(page.text).split())
    for words in (
        "End to end",
        "By system, phase and bucket",
        "unattributed: 0 calls, 0 tokens",
        "= 106",
        "Accounting rules",
        "What the figures are worth",
        "Two truths side by side",
        "What writing costs",
        "What a unit and a question cost",
        "Can the rows be compared?",
        "bands overlap: no order shown",
        "What this model can and cannot show",
        "How the energy was obtained",
        "modelled, not measured",
        "135 million parameters",
        "20 % cap-bound",
        "timeout",
        "5f0c5f0c",
    ):
        assert words in text, words
    assert {p.name for p in paths.png} == {
        "f2_tradeoff.png",
        "f3_phases.png",
        "f4_energy.png",
        "tokens.png",
        "walls.png",
    }


def test_csv_holds_the_figures_of_the_frames(paths: ReportPaths, folder: Path) -> None:
    by_name = {p.stem: list(csv.DictReader(p.open(encoding="utf-8"))) for p in paths.csv}
    run = agentmem.load(folder)
    total = sum(int(float(row["attempts"])) for row in by_name["phases"])
    assert total == len(run.calls)
    no_evidence_ids = [r for r in by_name["quality"] if r["system"] == "mem0"]
    assert no_evidence_ids[0]["recall_ids"] == ""
    assert by_name["t3_end_to_end"][0]["energy_source"] == "modelled"


def test_figures_are_pictures(paths: ReportPaths) -> None:
    for path in paths.png:
        with Image.open(path) as picture:
            assert picture.width > 1000 and len(picture.convert("RGB").getcolors(1 << 24)) > 20


@pytest.mark.slow
def test_same_run_same_bytes(paths: ReportPaths, folder: Path, tmp_path: Path) -> None:
    again = build([folder], tmp_path / "again")
    assert again.html.read_bytes() == paths.html.read_bytes()
    assert again.markdown.read_bytes() == paths.markdown.read_bytes()
    assert [p.read_bytes() for p in again.png] == [p.read_bytes() for p in paths.png]


def test_markdown_tables_have_even_rows(paths: ReportPaths) -> None:
    text = paths.markdown.read_text(encoding="utf-8")
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block
    assert "<img" not in text and "<script" not in text


@pytest.mark.slow
def test_several_runs_are_told_apart(folder: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path, changes={"run_id": "second"})
    content = gather([agentmem.load(folder), agentmem.load(other)])
    sheet = content.sheet("t3_end_to_end")
    assert set(sheet.frame["run"]) == {"quickstart-5f0c", "second"}
    assert [row[1] for row in sheet.rows] == ["A"] * 6 + ["B"] * 6
    text = html(content, ())
    assert "Comparison of 2 runs" in text and "B · second" in text


@pytest.mark.slow
def test_same_name_twice_gets_two_labels(folder: Path) -> None:
    run = agentmem.load(folder)
    assert len({entry.label for entry in gather([run, run]).runs}) == 2


def test_zero_correct_is_said_in_words(tmp_path: Path) -> None:
    def all_wrong(rows: list[Row]) -> list[Row]:
        return [replace(r, answer="Nowhere") if isinstance(r, Query) else r for r in rows]

    content = gather([agentmem.load(write_run(tmp_path, all_wrong))])
    assert "No system got any of the 10 questions right." in html(content, ())
    table = content.sheet("t3_end_to_end")
    place = [c.heading for c in table.columns].index("J per correct")
    assert {row[place] for row in table.rows} == {"–"}


def test_a_fault_is_shown_as_one(tmp_path: Path) -> None:
    late = new_call("late", phase=None, bucket="unattributed", scope="mem0-ana")
    text = text_of(write_run(tmp_path, lambda rows: [*rows, begin_of(late), late]))
    assert "DOES NOT HOLD" in text and "unattributed: 1 calls, 110 tokens" in text


def test_an_honest_run_shows_no_fault(folder: Path) -> None:
    assert "DOES NOT HOLD" not in text_of(folder)


def test_unknown_energy_is_not_zero(tmp_path: Path) -> None:
    def foreign(rows: list[Row]) -> list[Row]:
        return [replace(r, engine_cpu_s=None) if isinstance(r, Window) else r for r in rows]

    changes = {"engine": {"model": "big-32B", "kind": "foreign"}, "status": "incomplete"}
    text = text_of(write_run(tmp_path, foreign, changes))
    assert "No energy figure" in text
    assert "32 billion parameters" in text
    assert "The run is incomplete" in text


@pytest.mark.slow
def test_a_run_that_recorded_nothing_still_reports(tmp_path: Path) -> None:
    made = build([write_run(tmp_path / "r", lambda rows: [])], tmp_path / "out")
    text = made.html.read_text(encoding="utf-8")
    assert "No system answered a question." in text
    assert "DOES NOT HOLD" in text


def test_bad_places_are_one_clear_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run folder"):
        build([tmp_path], tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write the report"):
        build([folder], tmp_path / "file" / "out")


def printed(folder: Path, width: int) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(summary(agentmem.load(folder)))
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_console_summary_is_whole_at_any_width(folder: Path, width: int) -> None:
    lines = printed(folder, width)
    assert max(map(len, lines)) <= width
    mem0 = " ".join(x for x in lines if x.startswith("Mem0  "))
    found = mem0.split()
    for figure in ("≥", "6,036", "3,300", "251", "KB"):
        assert figure in found, figure
    assert "2 of 10" in mem0
    text = "\n".join(lines)
    assert "unattributed: 0 calls, 0 tokens" in text and "= 106" in text
    assert "…" not in text


def test_console_summary_needs_fewer_blocks_where_there_is_room(folder: Path) -> None:
    blocks = [sum(x.startswith("BM25") for x in printed(folder, w)) for w in (80, 120, 240)]
    assert blocks[0] > blocks[1] > blocks[2] == 1


def test_console_summary_shows_sums_that_do_not_add_up(folder: Path) -> None:
    run = agentmem.load(folder)
    run = replace(run, phases=run.phases.assign(attempts=run.phases["attempts"] + 1))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(summary(run))
    text = console.export_text()
    assert "≠ 106" in text and "does NOT add up to 106" in " ".join(text.split())


def test_a_replayed_run_says_so(tmp_path: Path) -> None:
    changes = {"engine": {"model": "smollm2-135m", "kind": "replay"}}
    run = agentmem.load(write_run(tmp_path, changes=changes))
    assert any("replayed from a recording" in line for line in warnings(run))
    assert "replayed from a recording" in html(gather([run]), ())


def test_storing_nothing_is_the_first_thing_said(tmp_path: Path) -> None:
    def nothing(rows: list[Row]) -> list[Row]:
        empty = {"added": 0, "updated": 0, "lost": 3}
        return [
            replace(r, **empty) if isinstance(r, Unit) and r.system == "mem0" else r for r in rows
        ]

    folder = write_run(tmp_path, nothing)
    assert warnings(agentmem.load(folder))[0] == "Mem0 stored nothing: all 12 facts lost."
    assert "Mem0 stored nothing: all 12 facts lost." in " ".join(
        " ".join(printed(folder, 80)).split()
    )
    assert 'flag">stored nothing: all 12 facts lost' in text_of(folder)


def test_what_must_be_equal_is_named(tmp_path: Path) -> None:
    """Ingest unit, the tokenizer that counts, the cache mode and what caches served."""
    params = {"unit": "chunk", "chunk_tokens": 512, "tokenizer": "smollm2"}
    workload = manifest()["workload"] | {"params": params}
    profile = {"run": {"cache": "warm"}, "calls": {"sampling": "fixed"}}
    run = agentmem.load(write_run(tmp_path, changes={"workload": workload, "profile": profile}))
    named = dict(facts(run))
    assert named["ingest unit"] == "chunk of 512 tokens, counted by smollm2"
    assert named["caches"].startswith("warm; a cache served ")


def test_repeats_of_a_question_stay_apart(tmp_path: Path) -> None:
    def twice(rows: list[Row]) -> list[Row]:
        again = [
            replace(r, scope=f"{r.scope}-1", repeat=1, answer="Nowhere")
            for r in rows
            if isinstance(r, Query)
        ]
        return [*rows, *again]

    (first, *_) = asked(agentmem.load(write_run(tmp_path, twice)))
    assert [reply.title for reply in first.replies][:2] == ["Long context (1)", "Long context (2)"]
    assert [reply.verdict for reply in first.replies][:2] == ["right", "wrong"]
    assert len(first.replies) == 12


def test_templates_are_package_data() -> None:
    folder = importlib.resources.files("agentmem.report") / "templates"
    assert (folder / "report.html.j2").is_file() and (folder / "report.css").is_file()


def test_forced_replies_of_another_length_are_counted(tmp_path: Path) -> None:
    def forced(rows: list[Row]) -> list[Row]:
        chats = [r for r in rows if isinstance(r, Call) and r.endpoint == "chat"]
        then = {r.call_id: {"output_tokens": r.output_tokens} for r in chats}
        then[chats[0].call_id] = {"output_tokens": -1}
        return [
            replace(r, engine={"forced": True, "recorded": then[r.call_id]})
            if isinstance(r, Call) and r.endpoint == "chat"
            else r
            for r in rows
        ]

    said = [x for x in warnings(agentmem.load(write_run(tmp_path, forced))) if "made to" in x]
    assert len(said) == 1 and "recorded replies; 1 of them have another number" in said[0]
