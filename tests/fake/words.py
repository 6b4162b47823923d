"""Deterministic stand-ins for a tokenizer, a language model and an embedder."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_TOKEN = re.compile(r"\s*(?:\w+|[^\w\s])")
_VOCABULARY = (
    *("amber", "bridge", "cedar", "delta", "ember", "fjord", "grove", "harbor", "island"),
    *("juniper", "kettle", "lantern", "meadow", "nickel", "orchard", "pebble"),
)
MESSAGE_TOKENS = 4
"""What the pretended chat template adds per message."""
REPLY_TOKENS = 8
"""Length of a reply nobody scripted."""


def tokens_of(text: str) -> list[str]:
    """Words and marks, each with the space before it: joined they give the text back."""
    return _TOKEN.findall(text)


def count(text: str) -> int:
    return len(tokens_of(text))


def texts_of(value: object) -> list[str]:
    """Strings in a message's content, a prompt or an input."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for one in value for text in texts_of(one)]
    if isinstance(value, Mapping):
        return texts_of(value.get("text")) + texts_of(value.get("content"))
    return []


def prompt_tokens(body: Mapping[str, Any]) -> list[str]:
    """The prompt as the fake reads it: message texts, each after its template's tokens."""
    prompt: list[str] = []
    for message in body.get("messages") or ():
        prompt += [f"<{message.get('role')}>"] * MESSAGE_TOKENS
        for text in texts_of(message.get("content")):
            prompt += tokens_of(text)
    for name in ("instructions", "prompt", "input"):
        value = body.get(name)
        if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
            prompt += [f"#{v}" for v in value]
        for text in texts_of(value):
            prompt += tokens_of(text)
    return prompt


def default_reply(body: Mapping[str, Any]) -> str:
    """Some words chosen by the prompt alone."""
    digest = hashlib.sha256("".join(prompt_tokens(body)).encode(errors="surrogatepass")).digest()
    return " ".join(_VOCABULARY[b % len(_VOCABULARY)] for b in digest[:REPLY_TOKENS])


@lru_cache(4096)
def _direction(word: str, dims: int) -> tuple[float, ...]:
    bits = hashlib.shake_256(word.encode(errors="surrogatepass")).digest(2 * dims)
    return tuple(v / 32768.0 for v in struct.unpack(f"<{dims}h", bits))


def embed(text: str, dims: int) -> list[float]:
    """Hashed bag of words, unit length: texts with common words are similar."""
    words = [t.strip().lower() for t in tokens_of(text)] or [""]
    columns = zip(*(_direction(word, dims) for word in words), strict=True)
    sums = [sum(column) for column in columns]
    norm = sum(v * v for v in sums) ** 0.5 or 1.0
    return [v / norm for v in sums]


def as_base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
