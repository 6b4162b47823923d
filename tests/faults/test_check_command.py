"""`agentmem check` finds planted accounting faults, names the rule, and exits with 6."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmem.cli.main import main
from tests.analysis.build_run import write_run
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
