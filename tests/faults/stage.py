"""A run of the command line with a fault planned in it, and what became of it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentmem.analysis.checks import check_run, failed
from agentmem.analysis.load import Run, load
from agentmem.cli.main import main
from tests.fake import FakeUpstream, Fault
from tests.fake.bill import Served

SYSTEMS = Path(__file__).parent / "systems"
KINDS = ("extract", "decide", "embed-write", "embed-query", "answer")
FAULTS = {
    "429": Fault("status", status=429, message="slow down"),
    "500": Fault("status", status=500),
    "time-out": Fault("hang", hang_s=1.5),
    "truncated stream": Fault("truncate"),
    "malformed JSON": Fault("malformed"),
    "context overflow": Fault("overflow"),
    "connection reset": Fault("reset"),
}
WORKLOAD = {
    "name": "generated",
    "seed": 3,
    "unit": "session",
    "sessions": 3,
    "history_tokens": 300,
    "questions": 2,
    "tokenizer": "words-v1",
}
TABLES: dict[str, dict[str, Any]] = {
    "calls": {"upstream_timeout_s": 0.5},
    "limits": {"unit_timeout_s": 60.0},
    "run": {"quiet_s": 0.02, "snapshot_every": 2, "reference_rows": False},
}
"""Time-outs of the product scaled down; nothing else differs from the defaults."""


def kind_of(served: Served) -> str | None:
    """The call's kind, as the fake can tell it from what the gateway sends along."""
    traffic = served.headers.get("x-agentmem-traffic")
    if traffic is None:
        return None
    background = traffic == "background"
    if served.endpoint == "embedding":
        return "embed-write" if background else "embed-query"
    if not background:
        return "answer"
    text = served.raw.decode(errors="replace")
    extracts = "Write the facts down." in text or "Personal Information Organizer" in text
    return "extract" if extracts else "decide"


def nth(kind: str, number: int) -> Callable[[Served], bool]:
    """True for one call of a kind, counted from 0."""
    seen: list[Served] = []

    def fits(served: Served) -> bool:
        if kind_of(served) == kind:
            seen.append(served)
        return kind_of(served) == kind and len(seen) == number + 1

    return fits


def deed(kind: str, number: int, act: Callable[[], object]) -> Fault:
    """No fault of the model server: something done when the n-th call of a kind arrives."""
    fits = nth(kind, number)

    def meet(served: Served) -> bool:
        if fits(served):
            act()
        return False

    return Fault("status", fits=meet)


@dataclass(frozen=True, slots=True)
class Said:
    """What the command came back with."""

    code: int
    err: tuple[str, ...]
    """Lines on stderr."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Those that speak of a failure."""
        marks = ("failed (", "agentmem:", "died")
        return tuple(line.strip() for line in self.err if any(m in line for m in marks))


@dataclass(slots=True)
class Trial:
    """One profile and one run folder."""

    fake: FakeUpstream
    folder: Path
    systems: tuple[str, ...] = ("scribe",)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=lambda: dict(WORKLOAD))

    @property
    def out(self) -> Path:
        return self.folder / "run"

    def command(self) -> list[str]:
        """Arguments of `agentmem` after writing the profile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        engine = {"url": self.fake.url, "model": "fake-chat", "embedder": "fake-embed"}
        tables: dict[str, dict[str, Any]] = {
            "engine": {**engine, "start_timeout_s": 2.0},
            "workload": self.workload,
            **{k: {**v, **self.tables.get(k, {})} for k, v in TABLES.items()},
            **{k: v for k, v in self.tables.items() if k not in TABLES},
        }
        tables["engine"] = {**engine, "start_timeout_s": 2.0, **self.tables.get("engine", {})}
        profile = self.folder / "profile.toml"
        profile.write_text(f'name = "fault"\nsystems = {list(self.systems)}\n' + toml(tables))
        return ["run", str(profile), "--out", str(self.out)]

    def go(self) -> Said:
        """Run the command in this process (the report left out by a fixture)."""
        return said(self.command())

    def load(self) -> Run:
        return load(self.out)

    def broken(self) -> list[str]:
        """Accounting rules that the run folder breaks."""
        return [f"{c.rule}: {c.detail}" for c in failed(check_run(self.load()))]

    def rows(self) -> list[bytes]:
        journal = self.out / "journal.jsonl"
        return journal.read_bytes().splitlines() if journal.exists() else []


def said(arguments: list[str]) -> Said:
    """`agentmem ARGUMENTS` in this process."""
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)
    return Said(code, tuple(err.getvalue().splitlines()))


def toml(tables: dict[str, dict[str, Any]]) -> str:
    lines: list[str] = []
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def lost(run: Run) -> str:
    """What the run lists as not done, in words."""
    parts = []
    units = run.units[run.units["status"] != "ok"]
    silent = run.units[(run.units["status"] == "ok") & (run.units["lost"] > 0)]
    queries = run.queries[run.queries["status"] != "ok"]
    for number, what in ((len(units), "unit"), (len(queries), "question")):
        if number:
            parts.append(f"{number} {what}{'s' if number > 1 else ''}, listed as failed")
    if len(silent):
        parts.append(f"{int(silent['lost'].sum())} pieces, counted as lost")
    return "; ".join(parts) or "nothing"


def workers(of: int | None = None) -> list[int]:
    """Worker processes whose harness is process `of`, this one by default."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if (
                parent == (of or os.getpid())
                and b"sandbox/worker.py" in (entry / "cmdline").read_bytes()
            ):
                found.append(int(entry.name))
    return found


def signal_worker(number: signal.Signals, of: int | None = None) -> None:
    """Signal the run's only worker."""
    (pid,) = workers(of)
    os.kill(pid, number)
