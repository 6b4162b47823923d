"""The fault table: every trial adds a row, printed at the end of a session that ran the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentmem.analysis.load import Run
from agentmem.runner.run import RunResult
from tests.fake import FakeUpstream
from tests.faults.stage import SYSTEMS, WORKLOAD, Trial
from tests.faults.table import ROWS, table

MakeTrial = Callable[..., Trial]


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports take seconds and are tried in test_hostile.py; here only the status is printed."""

    def show(result: RunResult) -> None:
        print(result.status)

    monkeypatch.setattr("agentmem.cli.run.show", show)
    monkeypatch.setenv("AGENTMEM_SYSTEMS", str(SYSTEMS))


@pytest.fixture
def trial(fake: FakeUpstream, tmp_path: Path) -> MakeTrial:
    """Makes a trial in this test's folder."""
    return lambda **given: Trial(fake, tmp_path, **given)


@pytest.fixture(scope="session")
def calm_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Run]]:
    """The undisturbed run of a system, made once."""
    made: dict[str, Run] = {}

    def calm(system: str) -> Run:
        if system not in made:
            with FakeUpstream(on_chat=script(system)) as fake:
                one = Trial(fake, tmp_path_factory.mktemp(f"calm-{system}"), (system,))
                assert one.go().code == 0
                assert one.broken() == []
                made[system] = one.load()
        return made[system]

    yield calm
    made.clear()


def script(system: str):  # type: ignore[no-untyped-def]
    from tests.fake.scripts import mem0

    return mem0 if system == "mem0" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    wanted = (terminalreporter.config.option.markexpr or "").replace("not slow", "")
    if ROWS and "slow" in wanted:
        terminalreporter.write_line("")
        for line in table():
            terminalreporter.write_line(line)


__all__ = ["WORKLOAD"]
