"""Grammars over tokens: JSON, JSON schemas and tool calls, by llguidance.

A constraint is asked for a mask before each token is chosen and told the token afterwards.
Separators are fixed (`", "` and `": "`, as `json.dumps` writes them): free white space is a place
where a small model never stops.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import llguidance
import numpy as np
from numpy.typing import NDArray

from agentmem.errors import EngineError

Mask = NDArray[np.bool_]

JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class GrammarError(EngineError):
    """A schema or grammar that cannot be carried out; the text says which part."""


class Vocabulary(Protocol):
    """What a grammar needs of a tokenizer."""

    @property
    def vocabulary(self) -> Sequence[bytes]: ...

    @property
    def control_ids(self) -> frozenset[int]: ...

    @property
    def bos_id(self) -> int | None: ...

    @property
    def eos_ids(self) -> tuple[int, ...]: ...

    def encode(self, text: str, special: bool = True) -> list[int]: ...


class Grammars:
    """Compiles grammars for one model's vocabulary. Thread-safe; the vocabulary is read once.

    `width` is the width of the logits; ids beyond the tokenizer's are never allowed.
    """

    def __init__(self, tokenizer: Vocabulary, width: int) -> None:
        self._tokenizer, self.width = tokenizer, width
        self._lock = threading.Lock()
        self._tokens: Any = None

    def json_schema(self, schema: dict[str, Any]) -> Grammar:
        """Grammar of the values of a schema, as it stands (see bounds.py for limits)."""
        return Grammar(self, json_grammar(schema))

    def lark(self, text: str) -> Grammar:
        """Grammar in llguidance's Lark dialect."""
        return Grammar(self, llguidance.LLMatcher.grammar_from_lark(text))

    @property
    def tokens(self) -> Any:
        """The vocabulary as llguidance keeps it; built at first use."""
        with self._lock:
            if self._tokens is None:
                wrapper = llguidance.TokenizerWrapper(_Source(self._tokenizer, self.width))
                self._tokens = llguidance.LLTokenizer(
                    wrapper, eos_token=list(self._tokenizer.eos_ids) or None
                )
            return self._tokens


class Grammar:
    """A checked grammar; every choice of a request takes its own constraint from it."""

    def __init__(self, grammars: Grammars, source: str) -> None:
        self._grammars = grammars
        self._matcher = llguidance.LLMatcher(grammars.tokens, source, log_level=0)
        if self._matcher.is_error():
            raise GrammarError(first_line(self._matcher.get_error()))

    def start(self) -> GrammarConstraint:
        """A constraint at the grammar's beginning."""
        return GrammarConstraint(
            self._matcher.deep_copy(), self._grammars.width, self._grammars.tokens
        )


class GrammarConstraint:
    """One answer under a grammar. Used by one thread at a time."""

    def __init__(self, matcher: Any, width: int, tokens: Any) -> None:
        self._matcher, self._width, self._tokens = matcher, width, tokens
        self._eos = frozenset(tokens.eos_tokens)

    def allowed(self) -> Mask | None:
        """Mask [width] over the vocabulary; the end token is in it where the text may end."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(bits, count=self._width, bitorder="little").view(np.bool_)
        if not mask.any():
            mask[list(self._eos)] = True
        return mask

    def advance(self, token: int) -> bool:
        """True when the text is complete, or when the grammar gave up (see `error`)."""
        if token in self._eos:
            return True
        self._matcher.consume_token(token)
        return bool(self._matcher.is_stopped())

    def forced(self) -> list[int]:
        """Tokens that must come next, as far as the grammar leaves no choice."""
        return list(self._matcher.compute_ff_tokens())

    def fitting(self, tokens: list[int]) -> int:
        """How many of these tokens the grammar allows, one after the other; takes in none."""
        return int(self._matcher.validate_tokens(tokens))

    def feed(self, text: bytes) -> bool:
        """Take text that was generated before the grammar began; False when it does not fit."""
        ids = self._tokens.greedy_tokenize(text.decode("utf-8", "replace"))
        return int(self._matcher.try_consume_tokens(ids)) == len(ids)

    @property
    def error(self) -> str | None:
        """Why the grammar gave up, or None."""
        return first_line(self._matcher.get_error()) if self._matcher.is_error() else None


class _Source:
    """A tokenizer in the shape that llguidance reads."""

    def __init__(self, tokenizer: Vocabulary, width: int) -> None:
        words = list(tokenizer.vocabulary)[:width]
        words += [b"\xff<unused>"] * (width - len(words))
        control = tokenizer.control_ids | set(tokenizer.eos_ids)
        # Without the mark, control tokens would be allowed inside JSON strings as plain text.
        for token in control:
            if token < width:
                words[token] = b"\xff" + words[token]
        self.tokens = words
        self.special_token_ids = sorted(control)
        self.eos_token_id = tokenizer.eos_ids[0] if tokenizer.eos_ids else 0
        self.bos_token_id = tokenizer.bos_id
        self._tokenizer = tokenizer

    def __call__(self, text: Any) -> list[int]:
        if isinstance(text, bytes):
            raise TypeError("text only")  # tells llguidance to pass strings
        return self._tokenizer.encode(text, special=False)


def json_grammar(schema: dict[str, Any]) -> str:
    """llguidance source of a schema. What its compiler does not know is an annotation."""
    options: Any = {**JSON_STYLE, "coerce_one_of": True, "lenient": True}
    return str(llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=options))


def first_line(text: str) -> str:
    """The first line of an upstream message, bounded."""
    return text.strip().partition("\n")[0][:300]
