"""Tool calls in the model's output: the grammar that forces them, the parser that reads them."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from agentmem.engine.api.bounds import bounded
from agentmem.engine.api.opening import END_TAG, TAG, Opened, OpeningScanner
from agentmem.engine.api.tools import Tool, ToolUse
from agentmem.engine.constraints import (
    JSON_STYLE,
    Grammar,
    GrammarConstraint,
    Grammars,
    Mask,
    Vocabulary,
)

MOST_CALLS = 8
BLANK = "/[ \\t\\n]{0,12}/"

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"arguments"\s*:\s*(?=\S)')


def call_grammar(grammars: Grammars, use: ToolUse, *, tagged: bool, opened: bool) -> Grammar:
    """Grammar of one call, or of several in tags.

    `opened`: the model has begun of its own accord, the first tag is written, and blanks may stand
    where it likes to put them.
    """
    rules = [_rule(at, tool, opened) for at, tool in enumerate(use.callable)]
    any_call = " | ".join(f"call_{at}" for at in range(len(rules)))
    if not tagged:
        start = "call"
    else:
        gap = BLANK if opened else json.dumps(f"{TAG}\n")
        between, end = json.dumps(f"\n{END_TAG}\n{TAG}\n"), json.dumps(f"\n{END_TAG}")
        again = f"({between} call){{0,{MOST_CALLS - 1}}}" if use.several else ""
        start = f"{gap} call {again} {end}"
    return grammars.lark("\n".join([f"start: {start}", f"call: {any_call}", *rules]))


def _rule(at: int, tool: Tool, loose: bool) -> str:
    # Each schema stands alone, so that its own "#/$defs" references hold.
    schema = {**bounded(tool.parameters), "x-guidance": {**JSON_STYLE, "lenient": True}}
    words = ["{", '"name"', ":", f'"{tool.name}"', ",", '"arguments"', ":"]
    strict = json.dumps(f'{{"name": "{tool.name}", "arguments": ')
    head = " ".join(f"{json.dumps(word)} {BLANK}" for word in words) if loose else strict
    end = f'{BLANK if loose else ""} "}}"'
    return f"call_{at}: {head} args_{at} {end}\nargs_{at}: %json {json.dumps(schema)}"


class FreeOrCall:
    """The constraint of `tool_choice: auto`: none until a call begins, then its grammar."""

    def __init__(
        self, vocabulary: Vocabulary, names: list[str], bare: Grammar, tagged: Grammar
    ) -> None:
        self._words, self._control = vocabulary.vocabulary, vocabulary.control_ids
        self._scanner: OpeningScanner | None = OpeningScanner(names)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._grammars = {False: bare, True: tagged}
        self._inner: GrammarConstraint | None = None

    def allowed(self) -> Mask | None:
        """None while the model is free."""
        return self._inner.allowed() if self._inner else None

    def advance(self, token: int) -> bool:
        """True when a call is complete."""
        if self._inner:
            return self._inner.advance(token)
        if token in self._control or token >= len(self._words):
            return False
        if self._scanner:
            _, opened = self._scanner.feed(self._decoder.decode(self._words[token]))
            if opened:
                self._begin(opened)
        return False

    def _begin(self, opened: Opened) -> None:
        self._scanner = None
        inner = self._grammars[opened.tagged].start()
        # What came in one token with the opening may rule a call out: then it was text after all.
        if inner.feed(opened.rest.encode()):
            self._inner = inner

    @property
    def error(self) -> str | None:
        """Why the grammar gave up, or None."""
        return self._inner.error if self._inner else None


@dataclass(frozen=True, slots=True)
class Event:
    """A piece of an answer. `call` None is text; `name` opens a call; else its arguments."""

    text: str
    call: int | None = None
    name: str | None = None


class CallParser:
    """Splits an answer into text and calls while it arrives. One per choice."""

    def __init__(self, names: list[str]) -> None:
        self._scanner: OpeningScanner | None = OpeningScanner(names)
        self._buffer, self._raw, self._calls = "", "", -1
        self._state: Callable[[], list[Event] | None] = self._head
        self._depth, self._quoted, self._escaped = 0, False, False

    @property
    def called(self) -> bool:
        """At least one call has begun."""
        return self._calls >= 0

    def feed(self, piece: str) -> list[Event]:
        """Events that this piece completes."""
        events: list[Event] = []
        if self._scanner:
            text, opened = self._scanner.feed(piece)
            events += [Event(text)] if text else []
            if opened is None:
                return events
            self._scanner, self._buffer, self._raw = None, opened.rest, opened.raw
        else:
            self._buffer += piece
            self._raw += piece
        while (more := self._state()) is not None:
            events += more
        return events

    def finish(self) -> list[Event]:
        """What was held back: an opening that never became a call is text after all."""
        held = self._scanner.finish() if self._scanner else ""
        if not self._scanner and not self.called:
            held = self._raw
        return [Event(held)] if held else []

    def _head(self) -> list[Event] | None:
        found = _HEAD.match(self._buffer)
        if not found:
            return None
        self._buffer = self._buffer[found.end() :]
        self._calls += 1
        self._state, self._depth, self._quoted = self._arguments, 0, False
        return [Event("", self._calls, json.loads(f'"{found.group(1)}"'))]

    def _arguments(self) -> list[Event] | None:
        if not self._buffer:
            return None
        end = self._end_of_value()
        piece, self._buffer = self._buffer[:end], self._buffer[end:]
        return [Event(piece, self._calls)]

    def _end_of_value(self) -> int:
        """How much of the buffer is arguments; at their end the next state is entered."""
        for at, letter in enumerate(self._buffer):
            if self._quoted:
                self._quoted = self._escaped or letter != '"'
                self._escaped = letter == "\\" and not self._escaped
            elif letter == '"':
                self._quoted = True
            elif letter in "{[":
                self._depth += 1
            elif letter in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._state = self._between
                    return at + 1
        return len(self._buffer)

    def _between(self) -> list[Event] | None:
        """After a call: skip to the next tag."""
        _, tag, after = self._buffer.partition(TAG)
        if not tag:
            return None
        self._buffer, self._state = after, self._head
        return []
