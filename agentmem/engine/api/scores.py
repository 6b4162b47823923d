"""Log-probabilities of an answer, in the form that chat or completions give them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

from agentmem.engine.api.errors import ApiError, bad_request
from agentmem.engine.api.fields import Fields
from agentmem.engine.request import Delta, TokenScores

Style = Literal["chat", "text"]
MOST_ALTERNATIVES = 20


def read_chat_logprobs(body: Fields) -> int | None:
    """Alternatives wanted per token: `logprobs` switches on, `top_logprobs` counts."""
    _refuse_prompt(body)
    top = body.integer("top_logprobs", 0, MOST_ALTERNATIVES)
    if body.flag("logprobs"):
        return top or 0
    if top:
        raise bad_request("top_logprobs needs logprobs to be true", "top_logprobs")
    return None


def read_text_logprobs(body: Fields) -> int | None:
    """Alternatives wanted per token; 0 still asks for the token's own."""
    _refuse_prompt(body)
    if body.get("logprobs") is False:
        return None
    return body.integer("logprobs", 0, MOST_ALTERNATIVES)


def _refuse_prompt(body: Fields) -> None:
    value = body.get("prompt_logprobs")
    if value is not None and value is not False:
        message = "prompt_logprobs is not supported by this server"
        raise bad_request(message, "prompt_logprobs", "unsupported")


class ScoreLog:
    """Scores of one choice while it grows. `hidden` tokens (end markers) are not told."""

    def __init__(self, words: Sequence[bytes], style: Style, hidden: Collection[int]) -> None:
        self._words, self._style, self._hidden = words, style, hidden
        self._entries: list[tuple[int, TokenScores]] = []
        self._told = 0
        self.logprob = 0.0
        """Of the whole answer, end marker included."""
        self.length = 0

    @property
    def mean(self) -> float:
        """Log-probability per token: what `best_of` ranks by."""
        return self.logprob / max(1, self.length)

    def take(self, delta: Delta) -> None:
        """What came with a piece of output; ApiError 500 when the engine gave no scores."""
        if len(delta.scores) != len(delta.tokens):
            message = "the engine gave no log-probabilities for its tokens"
            raise ApiError(500, message, code="no_logprobs")
        for token, scores in zip(delta.tokens, delta.scores, strict=True):
            self.logprob += scores.logprob
            self.length += 1
            if token not in self._hidden:
                self._entries.append((token, scores))

    def chunk(self) -> dict[str, Any] | None:
        """What no chunk has told yet, or None."""
        begin, self._told = self._told, len(self._entries)
        return self._form(begin) if begin < self._told else None

    def whole(self) -> dict[str, Any]:
        """All of it."""
        return self._form(0)

    def _form(self, begin: int) -> dict[str, Any]:
        entries = self._entries[begin:]
        if self._style == "chat":
            return {"content": [self._chat_entry(*e) for e in entries], "refusal": None}
        at = sum(len(self._text(token)) for token, _ in self._entries[:begin])
        offsets = []
        for token, _ in entries:
            offsets.append(at)
            at += len(self._text(token))
        return {
            "tokens": [self._text(token) for token, _ in entries],
            "token_logprobs": [scores.logprob for _, scores in entries],
            "top_logprobs": [self._table(token, scores) for token, scores in entries],
            "text_offset": offsets,
        }

    def _chat_entry(self, token: int, scores: TokenScores) -> dict[str, Any]:
        top = [self._named(one, logprob) for one, logprob in scores.top]
        return {**self._named(token, scores.logprob), "top_logprobs": top}

    def _named(self, token: int, logprob: float) -> dict[str, Any]:
        return {"token": self._text(token), "logprob": logprob, "bytes": list(self._word(token))}

    def _table(self, token: int, scores: TokenScores) -> dict[str, float]:
        table = {self._text(one): logprob for one, logprob in scores.top}
        return {**table, self._text(token): scores.logprob}

    def _text(self, token: int) -> str:
        return self._word(token).decode("utf-8", "replace")

    def _word(self, token: int) -> bytes:
        # Logits may be wider than the vocabulary.
        return self._words[token] if token < len(self._words) else b""
