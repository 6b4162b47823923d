"""Engines in processes of their own: answers, failures, stopped while not asked."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engine_parts.link import ROOT, EngineFailedError, Link

TOY = "tests.benchmarks.toy_engine"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Link]]:
    links: list[Link] = []

    def make(**options: Any) -> Link:
        links.append(Link(TOY, options, log=tmp_path / "log"))
        return links[-1]

    yield make
    for link in links:
        link.close()


def state(pid: int) -> str:
    """The process's state letter, once a signal had time to arrive."""
    time.sleep(0.05)
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_job_answers_whatever_the_engine_prints(start: Callable[..., Link]) -> None:
    link = start(threads=2)
    assert link.facts["given"] == {"threads": 2}
    assert link.facts["rss_mib"] > 1
    assert link.ask("double", number=21)["doubled"] == 42
    assert "chatter" in link.log.read_text()


def test_an_engine_is_stopped_except_while_it_is_asked(start: Callable[..., Link]) -> None:
    link = start()
    assert state(link.pid) == "T"
    told = link.ask("sleep", seconds=0.1)
    assert told["job_s"] >= 0.1
    assert 0 <= told["foreign_cores"] < 1.5 * (os.cpu_count() or 1)  # in ticks of 10 ms
    assert state(link.pid) == "T"


def test_a_failed_job_says_why_and_leaves_the_engine_usable(start: Callable[..., Link]) -> None:
    link = start()
    with pytest.raises(EngineFailedError, match="KeyError: 'nothing here'"):
        link.ask("fail")
    assert state(link.pid) == "T"
    assert link.ask("double", number=1)["doubled"] == 2


def test_an_engine_that_cannot_be_opened_says_why(start: Callable[..., Link]) -> None:
    with pytest.raises(EngineFailedError, match=r"^not on a Tuesday$"):
        start(refuse="not on a Tuesday")
    with pytest.raises(EngineFailedError, match=r"^ValueError: broken in two lines$"):
        start(**{"break": True})


def test_an_engine_that_dies_is_told_by_its_code_and_last_words(
    start: Callable[..., Link],
) -> None:
    link = start()
    with pytest.raises(EngineFailedError, match="ended with 3: last words"):
        link.ask("die")


def test_an_engine_that_takes_too_long_is_ended(start: Callable[..., Link]) -> None:
    link = start()
    with pytest.raises(EngineFailedError, match="no answer within 0 s"):
        link.ask("sleep", seconds=60, timeout_s=0.2)
    assert not Path(f"/proc/{link.pid}").exists()


def test_a_stopped_engine_ends_with_its_benchmark(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from benchmarks.engine_parts.link import Link; import os;"
        f"link = Link({TOY!r}, {{}}, log=Path({str(tmp_path / 'log')!r}));"
        "print(link.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    pid, until = int(done.stdout), time.monotonic() + 10
    while running(pid):
        assert time.monotonic() < until
        time.sleep(0.02)


def running(pid: int) -> bool:
    try:
        return state(pid) not in "ZX"
    except FileNotFoundError:
        return False
