"""The clients of a soak: interactive prompts, background work, sessions, aborts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from benchmarks.engine_parts.prompts import draw

TRAFFIC = "X-Agentmem-Traffic"
ABORTED = {"interactive": 0.05, "background": 0.15}
"""Share of requests whose client hangs up in the middle."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One request: when its first token came, how it ended."""

    phase: str
    kind: str
    ended: str
    """done, aborted, refused (429), failed, stuck."""
    ttft_s: float | None
    wall_s: float
    detail: str = ""


@dataclass(slots=True)
class Load:
    """What all clients share; `phase` says which of them work, and as what."""

    url: str
    client: aiohttp.ClientSession
    model: str
    vocabulary: int
    window: int
    prompt: int
    stuck_s: float
    phase: str = "pause"
    answers: list[Answer] = field(default_factory=list)
    in_flight: int = 0
    ended: bool = False

    @property
    def counts(self) -> Counter[str]:
        """Answers by how they ended."""
        return Counter(answer.ended for answer in self.answers)


async def interactive(load: Load, number: int, pause_s: float) -> None:
    """One prompt of the stated length after another, new every time, in every phase."""
    source = random.Random(f"interactive {number}")
    while not load.ended:
        if load.phase == "pause":
            await asyncio.sleep(0.05)
            continue
        ids = draw(source, load.prompt, load.vocabulary)
        await ask(load, "interactive", ids, 16, f"person-{number}", source)
        await asyncio.sleep(source.uniform(0.5, 1.5) * pause_s)


async def background(load: Load, number: int) -> None:
    """Histories that grow turn by turn in a session, and single prompts; never in `alone`."""
    source = random.Random(f"background {number}")
    longest, most = min(300, load.window // 6), min(1200, load.window // 2)
    history: list[int] = []
    turn = 0
    while not load.ended:
        if load.phase in ("pause", "alone"):
            await asyncio.sleep(0.05)
            continue
        turn += 1
        if len(history) > most:
            history = []
        more = draw(source, source.randint(32, longest), load.vocabulary)
        history = history + more
        session = f"work-{number}" if turn % 3 else None
        ids = history if session else more
        await ask(load, "background", ids, source.choice((8, 24, 64)), session, source)


async def ask(
    load: Load, kind: str, ids: list[int], tokens: int, session: str | None, source: random.Random
) -> None:
    """One streamed completion, or the beginning of one; always ends with an Answer."""
    phase = load.phase
    # without classes all traffic is alike
    headers = {TRAFFIC: "interactive" if phase == "no classes" else kind}
    body: dict[str, Any] = {
        "model": load.model,
        "prompt": ids,
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "temperature": 0.0,
    }
    if session is not None:
        body["session_id"] = session
    hang_up_s = source.uniform(0.05, 3.0) if source.random() < ABORTED[kind] else None
    began, first = time.monotonic(), [None]
    load.in_flight += 1
    try:
        limit_s = load.stuck_s if hang_up_s is None else hang_up_s
        async with asyncio.timeout(limit_s):
            ended, detail = await _stream(load, body, headers, began, first)
    except TimeoutError:
        ended, detail = ("stuck" if hang_up_s is None else "aborted"), ""
    except (aiohttp.ClientError, OSError) as error:
        ended, detail = "failed", repr(error)
    finally:
        load.in_flight -= 1
    wall_s = time.monotonic() - began
    load.answers.append(Answer(phase, kind, ended, first[0], wall_s, detail))
    if ended in ("failed", "stuck"):
        await asyncio.sleep(1.0)


async def _stream(
    load: Load, body: dict[str, Any], headers: dict[str, str], began: float, first: list[Any]
) -> tuple[str, str]:
    async with load.client.post(f"{load.url}/v1/completions", json=body, headers=headers) as reply:
        if reply.status == 429:
            wait_s = float(reply.headers.get("Retry-After", "1"))
            reply.release()
            with contextlib.suppress(TimeoutError):
                await asyncio.sleep(min(wait_s, 10.0))
            return "refused", ""
        if reply.status != 200:
            return "failed", f"{reply.status} {(await reply.text())[:200]}"
        async for line in reply.content:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return "done", ""
            event = json.loads(data)
            if "error" in event:
                return "failed", str(event["error"])[:200]
            if first[0] is None:
                first[0] = time.monotonic() - began
    return "failed", "the stream ended without [DONE]"
