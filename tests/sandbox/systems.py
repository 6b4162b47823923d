"""Throw-away memory systems for tests."""

from __future__ import annotations

import textwrap
from pathlib import Path

from agentmem.memory import Endpoints, Limits, Turn, Unit
from agentmem.sandbox.client import Worker, WorkerOptions
from agentmem.sandbox.environment import ensure
from agentmem.sandbox.specs import SystemSpec, load_spec

TOML = """
name = "{name}"
title = "{name}"
paradigm = "test"
environment = "{environment}"
{extra}

[taxonomy]
agentic = "no"
construction_llm = "no"
construction_embeds = "no"
structured_records = "no"
store = "none"
retrieval_llm = "no"
retrieval_flow = "none"
mutability = "append"
{tables}
"""
HEAD = """
from agentmem.memory import MemorySystem, Stored, Retrieved, Entry
"""
QUIET = """
class Quiet(MemorySystem):
    def open(self, dir, endpoints, limits):
        self.dir = dir
    def construct(self, unit):
        return Stored(added=1)
    def retrieve(self, user, question, k):
        return Retrieved()
"""


def write_system(
    folder: Path,
    adapter: str = QUIET,
    name: str = "probe",
    environment: str = "host",
    extra: str = "",
    tables: str = "",
    requirements: str | None = None,
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    toml = TOML.format(name=name, environment=environment, extra=extra, tables=tables)
    (folder / "system.toml").write_text(toml)
    (folder / "adapter.py").write_text(HEAD + textwrap.dedent(adapter))
    if requirements is not None:
        (folder / "requirements.txt").write_text(requirements)
    return folder


def probe(folder: Path, construct: str, head: str = "", tables: str = "") -> SystemSpec:
    """A system whose `construct(self, unit)` has the given body."""
    body = textwrap.indent(textwrap.dedent(construct).strip(), " " * 8)
    adapter = textwrap.dedent(head) + QUIET.replace("        return Stored(added=1)", body)
    return load_spec(write_system(folder / "system", adapter, tables=tables))


def worker_of(
    spec: SystemSpec,
    folder: Path,
    ports: tuple[int, ...] = (),
    options: WorkerOptions | None = None,
) -> Worker:
    return Worker(spec, ensure(spec), folder / "store", folder / "logs", ports, options)


def unit(text: str = "hello", name: str = "u-1", at: str | None = None) -> Unit:
    return Unit(name, "alice", text, (Turn(f"{name}:0", "Alice", "user", text, at),), at)


ENDPOINTS = Endpoints("http://127.0.0.1:9/v1", "m", "http://127.0.0.1:9/v1", "e", 8, 1000)
LIMITS = Limits()
