"""Run folders: what is read, what is tolerated, what is refused and with which words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import agentmem
from agentmem.errors import DataError
from agentmem.records import Call, CallBegin, Mark, Unit, Window, to_json
from tests.analysis.build_run import build_rows, write_run
from tests.analysis.synth import HISTORY, begin_of, moved, new_call


def test_frames_hold_what_was_written(tmp_path: Path) -> None:
    run = agentmem.load(write_run(tmp_path / "r"))
    rows = build_rows()
    assert len(run.calls) == sum(isinstance(r, Call) for r in rows)
    assert len(run.windows) == sum(isinstance(r, Window) for r in rows)
    assert run.calls["input_tokens"].isna().sum() == 1
    assert run.systems == [
        "long_context",
        "bm25",
        "embedrag",
        "mem0",
        "no_memory",
        "oracle_evidence",
    ]


def test_unknown_is_not_zero_or_false(tmp_path: Path) -> None:
    run = agentmem.load(write_run(tmp_path / "r"))
    retried = run.calls[run.calls["logical_id"] == "Lretry"]
    assert retried["output_tokens"].isna().tolist() == [True, False]
    abstention = run.scores[run.scores["abstain"]]
    assert abstention["stale_answer"].isna().all()


def test_open_call_stays_on_the_bill(tmp_path: Path) -> None:
    ghost = begin_of(new_call("ghost", scope="mem0-ana", unit="s1"))
    run = agentmem.load(write_run(tmp_path / "r", lambda rows: [*rows, ghost]))
    call = run.calls.set_index("call_id").loc["ghost"]
    assert call["outcome"] == "open" and not call["ok"]
    assert run.calls.set_index("call_id")["input_tokens"].isna()["ghost"]
    before = agentmem.load(write_run(tmp_path / "b"))
    assert run.phases["attempts"].sum() == before.phases["attempts"].sum() + 1
    missing = "output_tokens_missing"
    assert run.phases[missing].sum() == before.phases[missing].sum() + 1


def test_reattribution_moves_a_call(tmp_path: Path) -> None:
    run = agentmem.load(
        write_run(tmp_path / "r", lambda rows: [*rows, moved("c0001", "retrieval")])
    )
    call = run.calls.set_index("call_id").loc["c0001"]
    assert (call["booked_phase"], call["phase"]) == ("generation", "retrieval")


def test_a_rerun_unit_wastes_its_first_try(tmp_path: Path) -> None:
    def rerun(rows: list[object]) -> list[object]:
        again = [
            replace(r, epoch=1, call_id=f"again-{r.call_id}")
            if isinstance(r, Call | CallBegin)
            else replace(r, epoch=1)
            for r in rows
            if isinstance(r, Call | CallBegin | Window | Unit)
            and (r.system, r.unit) == ("mem0", "s4")
        ]
        return [*rows, *again]

    once = agentmem.load(write_run(tmp_path / "once"))
    run = agentmem.load(write_run(tmp_path / "r", rerun))
    assert len(run.units) == len(once.units)
    wasted = run.phases[run.phases["bucket"] == "wasted"]
    assert wasted["attempts"].sum() == 5
    columns = ["system", "phase", "attempts", "input_tokens", "wall_s"]
    measured = run.phases[run.phases["bucket"] == "measured"][columns]
    expected = once.phases[once.phases["bucket"] == "measured"][columns]
    assert measured.reset_index(drop=True).equals(expected.reset_index(drop=True))


def test_torn_last_line_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r")
    whole = agentmem.load(folder)
    with (folder / "journal.jsonl").open("a") as file:
        file.write(json.dumps(to_json(begin_of(new_call("x"))))[:40])
    assert len(agentmem.load(folder).journal) == len(whole.journal)


def test_units_rolled_back_and_not_yet_redone_do_not_count(tmp_path: Path) -> None:
    kept = ("s1", "s2", "s3", *(f"q{n}" for n in range(10)))
    mark = Mark("mem0-ana", "mem0", HISTORY, "resumed", "s3", 99.0, kept, 1)
    run = agentmem.load(write_run(tmp_path / "r", lambda rows: [*rows, mark]))
    units = run.units[run.units["system"] == "mem0"]
    assert units["unit"].tolist() == ["s1", "s2", "s3"]
    wasted = run.calls[run.calls["bucket"] == "wasted"]
    assert set(wasted["unit"]) == {"s4"} and len(wasted) == 5
    assert len(run.queries[run.queries["system"] == "mem0"]) == 10


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("manifest.json", None, "not a run folder"),
        ("manifest.json", b"{", "not valid JSON"),
        ("manifest.json", b"[]", "JSON object"),
        ("manifest.json", b'{"format": 99}', "format 99"),
        ("manifest.json", b"\xff\xfe", "not valid JSON"),
        ("journal.jsonl", None, "no journal.jsonl"),
        ("journal.jsonl", b'{"row": "Call"\n{"row": "x"}\n', "line 1"),
        ("journal.jsonl", b'{"row": "Nonsense"}\n', "unknown row type"),
        ("journal.jsonl", b'\n{"row": "Call"}\n', "line 1 is corrupt: no JSON"),
        ("journal.jsonl", b"[1]\n", "line 1"),
    ],
)
def test_bad_folder_is_one_clear_line(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    folder = write_run(tmp_path / "r")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        agentmem.load(folder)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run folder"):
        agentmem.load(tmp_path / "nowhere")


def test_empty_journal_gives_empty_frames(tmp_path: Path) -> None:
    run = agentmem.load(write_run(tmp_path / "r", lambda rows: []))
    assert run.calls.empty and run.phases.empty and run.scores.empty
