"""FactConsolidation: the newest fact wins, the older is stale."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentmem.errors import DataError
from agentmem.workloads import WorkloadSpec, build
from agentmem.workloads.check import check_built

SMALL = {
    "name": "small",
    "context": "Here is a list of facts:\n0. Ann lives in Rome.\n1. Bob sings.\n"
    "2. Ann lives in Oslo.",
    "facts": [{"serial": n} for n in range(3)],
    "official_sh_first40": [{"id": "sh0", "question": "Where does Ann live?", "answers": ["Oslo"]}],
    "official_mh_first40": [{"id": "mh0", "question": "Hop?", "answers": ["x"]}],
    "generated_sh_all_slots": [
        {
            "question": "Where does Ann live?",
            "answers": ["Oslo"],
            "stale": ["Rome"],
            "serials": [0, 2],
        },
        {"question": "What does Bob do?", "answers": ["sings"], "stale": [], "serials": [1]},
    ],
}


def test_newest_serial_is_the_evidence_and_older_values_are_stale(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL))
    (history,) = build(WorkloadSpec("factconsolidation", path=str(path), unit="turn")).histories
    single, multi = history.questions
    assert (single.golds, single.stale) == (("Oslo",), ("Rome",))
    assert single.evidence == ("fact-2",)
    assert single.evidence_texts == ("2. Ann lives in Oslo.",)
    assert multi.category == "multi-hop"
    assert multi.evidence == ()
    assert [u.text for u in history.units][1:3] == ["0. Ann lives in Rome.", "1. Bob sings."]


def test_lines_that_are_not_the_facts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL | {"facts": [{"serial": 7}]}))
    with pytest.raises(DataError, match="not the serials"):
        build(WorkloadSpec("factconsolidation", path=str(path)))


@pytest.mark.skipif(
    not (Path(os.environ.get("AGENTMEM_DATA", "")) / "factconsolidation").is_dir(),
    reason="needs AGENTMEM_DATA with factconsolidation/",
)
def test_the_6k_list_as_given() -> None:
    spec = WorkloadSpec(
        "factconsolidation",
        unit="chunk",
        chunk_tokens=512,
        categories=("single-hop", "multi-hop", "slot"),
    )
    workload = build(spec)
    (history,) = workload.histories
    assert workload.sources["counts"]["facts"] == 455
    by_category = [q.category for q in history.questions]
    assert [by_category.count(c) for c in ("single-hop", "multi-hop", "slot")] == [40, 40, 294]
    assert sum(bool(q.stale) for q in history.questions if q.category == "slot") == 161
    assert "".join(u.text for u in history.units).startswith("Here is a list of facts:\n0. Thomas")
    assert [row for row in check_built(workload) if not row.ok] == []
