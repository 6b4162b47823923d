"""Mem0 in its own environment against scripted models: what its tests stand on."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentmem.memory import Endpoints, Limits, Turn, Unit
from agentmem.sandbox.client import Worker
from agentmem.sandbox.environment import ensure, status
from agentmem.sandbox.specs import load_spec
from tests.systems.scripted import ScriptedModels, Seen

FOLDER = Path(__file__).resolve().parents[2] / "memsystems" / "mem0"
SPEC = load_spec(FOLDER)
READY = status(SPEC).state == "ready"
REASON = "needs the environment of Mem0: agentmem systems install mem0"
LIMITS = Limits(max_output_tokens=200, request_timeout_s=30.0)


def endpoints(models: ScriptedModels, chat_model: str = "scripted") -> Endpoints:
    return Endpoints(models.url, chat_model, models.url, "scripted-embed", models.dims, 8192)


def worker(models: ScriptedModels, store: Path) -> Worker:
    """Started, with nothing but the models' port to reach, and not opened."""
    log_dir = store.parent / "logs"
    made = Worker(SPEC, ensure(SPEC), store, log_dir, allowed_ports=(models.port,))
    made.start()
    assert made.last is not None and made.last.blocked == 0
    return made


def opened(models: ScriptedModels, store: Path, limits: Limits = LIMITS) -> Worker:
    made = worker(models, store)
    made.open(endpoints(models), limits)
    assert made.last is not None and made.last.blocked == 0
    return made


def unit(number: int, text: str, user: str = "ana") -> Unit:
    turn = Turn(f"t{number}", "Ana", "user", text, "2023-05-08T13:56:00")
    return Unit(f"u{number}", user, f"[8 May 2023, 13:56]\nAna: {text}", (turn,), turn.at)


def facts(*texts: Any) -> dict[str, Any]:
    """An extraction reply."""
    return {"facts": list(texts)}


def actions(*items: Any) -> dict[str, Any]:
    """A consolidation reply."""
    return {"memory": list(items)}


def act(event: str, text: str | None = None, number: str = "0") -> dict[str, Any]:
    return {"id": number, "event": event} | ({} if text is None else {"text": text})


def known(seen: Seen) -> list[dict[str, str]]:
    """The facts that a consolidation prompt shows as already stored, in the order shown."""
    head = "current content of my memory which I have collected till now"
    [prompt] = seen.texts
    if head not in prompt:
        return []
    return list(ast.literal_eval(prompt.split(head)[1].split("```")[1].strip()))


def change(*wanted: tuple[str, str, str]) -> Callable[[Seen], dict[str, Any]]:
    """A consolidation reply of (event, stored text, new text), ids as shown."""

    def reply(seen: Seen) -> dict[str, Any]:
        ids = {item["text"]: item["id"] for item in known(seen)}
        return actions(*(act(event, new, ids[old]) for event, old, new in wanted))

    return reply
