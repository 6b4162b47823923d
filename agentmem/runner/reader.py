"""The reader: prompt assembly (R10: nothing but the profile, notes and question) and the answer."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentmem.errors import EngineError
from agentmem.memory import Entry

SYSTEM_PROMPT = (
    "Answer the question from the notes. Reply with the answer alone, in a few words. "
    'If the notes do not hold the answer, reply "I don\'t know".'
)
TEMPLATE_TOKENS = 48
"""Room kept for the chat template around the text; a template's own cost is in the usage."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Messages that fit the window, and what had to give."""

    messages: tuple[dict[str, str], ...]
    used: tuple[Entry, ...]
    overflow: bool
    """Ten entries did not fit, so fewer were used."""
    cut_tokens: int
    """Tokens of the entries' text left out."""
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Room:
    """What the prompt has to fit into."""

    window_tokens: int
    max_tokens: int
    k: int
    k_overflow: int
    count: Callable[[str], int]
    """Tokens of a text."""


def assemble(question: str, entries: Sequence[Entry], room: Room, passthrough: bool) -> Prompt:
    """Prompt with all that fits: k entries, else k_overflow, else the text is cut.

    A pass-through system's history loses its oldest part first; ranked entries lose the last rank.
    """
    budget = room.window_tokens - room.max_tokens - TEMPLATE_TOKENS
    budget -= room.count(SYSTEM_PROMPT) + room.count(_ask("", question))
    used = list(entries) if passthrough else list(entries[: room.k])
    costs = _costs(used, room)
    overflow = sum(costs) > budget
    if overflow and not passthrough:
        used, costs = used[: room.k_overflow], costs[: room.k_overflow]
    kept, size = _fit(used, costs, budget, room, oldest_first=passthrough)
    text = _ask(_notes(kept), question)
    messages = ({"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": text})
    return Prompt(messages, tuple(kept), overflow, max(sum(costs) - size, 0), size)


def _notes(entries: Sequence[Entry]) -> str:
    return "\n".join(f"- {entry.text}" for entry in entries)


def _ask(notes: str, question: str) -> str:
    return f"Notes:\n{notes or '(none)'}\n\nQuestion: {question}\nAnswer:"


def _costs(entries: Sequence[Entry], room: Room) -> list[int]:
    # Entry by entry, so that a history of thousands of units is counted once.
    return [room.count(f"- {entry.text}\n") for entry in entries]


def _fit(
    entries: list[Entry], costs: list[int], budget: int, room: Room, oldest_first: bool
) -> tuple[list[Entry], int]:
    """Entries that fit and their tokens; the last one standing is shortened instead of dropped."""
    kept, total = list(entries), sum(costs)
    spare = list(costs)
    while len(kept) > 1 and total > budget:
        at = 0 if oldest_first else -1
        total -= spare.pop(at)
        kept.pop(at)
    if kept and total > budget:
        only = kept[0]
        text = _shorten(only.text, budget, room, oldest_first)
        return [Entry(text, only.score, only.source_ids)], room.count(f"- {text}\n")
    return kept, total


def _shorten(text: str, budget: int, room: Room, oldest_first: bool) -> str:
    low, high = 0, len(text)
    while low < high:  # Longest piece that fits, by bisection on characters.
        middle = (low + high + 1) // 2
        piece = text[-middle:] if oldest_first else text[:middle]
        if room.count(f"- {piece}") <= budget:
            low = middle
        else:
            high = middle - 1
    return (text[-low:] if oldest_first else text[:low]) if low else ""


def ask(base_url: str, model: str, prompt: Prompt, max_tokens: int, timeout_s: float) -> str:
    """Answer text from the chat endpoint below `base_url`; EngineError says what went wrong."""
    body = {"model": model, "messages": list(prompt.messages), "max_tokens": max_tokens}
    reply = post_json(f"{base_url}/chat/completions", body, timeout_s)
    try:
        return str(reply["choices"][0]["message"]["content"] or "").strip()
    except (KeyError, IndexError, TypeError):
        raise EngineError(f"the model server's reply has no message: {str(reply)[:200]}") from None


def post_json(url: str, body: Any, timeout_s: float) -> dict[str, Any]:
    """POST over a fresh loopback connection: a failed call is one attempt, never retried here."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    headers = {"Content-Type": "application/json"}
    try:
        connection.request("POST", parts.path, json.dumps(body).encode(), headers)
        response = connection.getresponse()
        data = response.read()
    except (OSError, http.client.HTTPException) as err:
        raise EngineError(f"no answer from {parts.netloc}: {err or type(err).__name__}") from None
    finally:
        connection.close()
    if response.status != 200:
        raise EngineError(
            f"model server answered {response.status}: {data[:300].decode(errors='replace')}"
        )
    try:
        parsed = json.loads(data)
    except ValueError:
        raise EngineError("the model server's reply is not JSON") from None
    if not isinstance(parsed, dict):
        raise EngineError("the model server's reply is not a JSON object")
    return parsed
