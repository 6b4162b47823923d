"""Replies for tests that need a model to say something in particular."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from tests.fake.words import default_reply, texts_of


def mem0(body: dict[str, Any]) -> str:
    """Valid JSON for mem0's two prompts: every line said becomes a fact, every fact is added.

    Other prompts get the default reply.
    """
    texts = [t for m in body.get("messages") or () for t in texts_of(m.get("content"))]
    text = "\n".join(texts)
    if "new retrieved facts" in text.lower() or '"event"' in text:
        return json.dumps({"memory": [_added(i, fact) for i, fact in enumerate(_facts_in(text))]})
    if "facts" in text.lower() and "json" in text.lower():
        said = [line.split(":", 1)[-1].strip() for line in texts[-1].splitlines() if ":" in line]
        return json.dumps({"facts": [line for line in said if line]})
    return default_reply(body)


def _added(index: int, fact: str) -> Mapping[str, str]:
    return {"id": str(index), "text": fact, "event": "ADD"}


def _facts_in(text: str) -> list[str]:
    """The last JSON or Python list of strings in a prompt: where the new facts stand."""
    for found in reversed(re.findall(r"\[[^\[\]{}]*\]", text)):
        items = re.findall(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'", found)
        if items:
            return [double or single for double, single in items]
    return []


SCRIPTS = {"mem0": mem0}
