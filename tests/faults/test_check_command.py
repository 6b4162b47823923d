"""`agentmem check` finds planted accounting faults, names the rule, and exits with 6."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmem.cli.main import main
from agentmem.records import Row
from tests.analysis.build_run import write_run
from tests.analysis.synth import begin_of, new_call
from tests.analysis.test_checks import FAULTS

TEN = (
    "double count",
    "retry dropped",
    "missing usage as 0",
    "cache counted twice",
    "usage against engine",
    "overlapping windows",
    "joules without a counter",
    "unit dropped",
    "index built in a question",
    "call moved on both rows",
)


@pytest.mark.parametrize("name", TEN)
def test_a_planted_fault(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rule, doctor = FAULTS[name]
    folder = write_run(tmp_path / "run", doctor)
    assert main(["check", str(folder)]) == 6
    broken = [line.split() for line in capsys.readouterr().out.splitlines() if "BROKEN" in line]
    assert rule in {words[0] for words in broken}


def test_an_honest_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(write_run(tmp_path / "run"))]) == 0
    assert "BROKEN" not in capsys.readouterr().out


def test_work_cut_off_by_a_kill(tmp_path: Path) -> None:
    """A call whose window was never written, since the process was killed, is no fault."""

    def cut(rows: list[Row]) -> list[Row]:
        call = new_call("cut", system="bm25", scope="bm25-ana", start_s=1e6)
        return [*rows, begin_of(call), call]

    folder = write_run(tmp_path / "run", cut)
    assert main(["check", str(folder)]) == 6
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete"', '"running"'))
    assert main(["check", str(folder)]) == 0
