"""Beam search: the likeliest whole answers, found by single-token requests side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from agentmem.engine.request import FinishReason, Request, Sampling, TokenScores


@dataclass(frozen=True, slots=True)
class Beam:
    """An answer so far, and how likely it is."""

    tokens: tuple[int, ...] = ()
    logprob: float = 0.0
    reason: FinishReason | None = None
    scores: tuple[TokenScores, ...] = ()
    cut: int | None = None
    """Where a stop string begins in its text."""

    def score(self, length_penalty: float) -> float:
        """Log-probability over length to the power `length_penalty`; more is better."""
        return weighed(self.logprob, max(1, len(self.tokens)), length_penalty)


def weighed(logprob: float, length: int, penalty: float) -> float:
    """Log-probability over length to the power `penalty`."""
    return logprob / float(length**penalty)


class BeamSearch:
    """The search for one prompt. Ask for `requests`, hand their scores to `take`, until `done`.

    An end marker counts with its log-probability and its length. A sub-request of step `t` for beam
    `b` has the id `{parent}-{t}-beam-{b}`, and all else of `like`: session, tenant, class.
    """

    def __init__(
        self,
        like: Request,
        width: int,
        max_tokens: int,
        *,
        eos: Collection[int],
        length_penalty: float = 1.0,
        decode: Callable[[Sequence[int]], str] | None = None,
    ) -> None:
        self._like, self._width, self._limit = like, width, max_tokens
        self._penalty, self._decode = length_penalty, decode
        self._eos = frozenset() if like.sampling.ignore_eos else frozenset(eos)
        self._live = [Beam()]
        self._ended: list[Beam] = []
        self._step = 0

    @property
    def done(self) -> bool:
        """No live beam is left that could still be among the best."""
        return not self._live

    def requests(self) -> list[Request]:
        """One request for each live beam."""
        sampling = Sampling(
            temperature=0.0, max_tokens=1, ignore_eos=True, logprobs=2 * self._width
        )
        like = self._like
        return [
            Request(
                request_id=f"{like.request_id}-{self._step}-beam-{at}",
                prompt=like.prompt + beam.tokens,
                sampling=sampling,
                session_id=like.session_id,
                tenant=like.tenant,
                traffic_class=like.traffic_class,
                drafts=False,
                reuse=like.reuse,
            )
            for at, beam in enumerate(self._live)
        ]

    def take(self, scores: Sequence[TokenScores]) -> None:
        """The alternatives at each live beam, in the order of `requests`."""
        grown = [
            self._extended(beam, token, logprob, at)
            for beam, at in zip(self._live, scores, strict=True)
            for token, logprob in at.top
        ]
        self._step += 1
        # The sort is stable, so that ties fall the same way every time.
        grown.sort(key=lambda beam: -beam.logprob)
        live: list[Beam] = []
        for beam in grown:
            if len(live) == self._width:
                break
            (live if beam.reason is None else self._ended).append(beam)
        self._ended = self._ranked(self._ended)[: self._width]
        self._live = [] if self._settled(live) else live

    def best(self, n: int) -> list[Beam]:
        """The `n` best answers, best first."""
        return self._ranked(self._ended + self._live)[:n]

    def _extended(self, beam: Beam, token: int, logprob: float, at: TokenScores) -> Beam:
        tokens = (*beam.tokens, token)
        scores = (*beam.scores, TokenScores(logprob, at.top))
        reason: FinishReason | None = None
        cut = self._stop_at(tokens)
        if token in self._eos or cut is not None:
            reason = "stop"
        elif len(tokens) >= self._limit:
            reason = "length"
        return Beam(tokens, beam.logprob + logprob, reason, scores, cut)

    def _stop_at(self, tokens: tuple[int, ...]) -> int | None:
        stops = self._like.sampling.stop
        if not stops or self._decode is None:
            return None
        text = self._decode(tokens)
        found = [at for at in (text.find(stop) for stop in stops) if at >= 0]
        return min(found, default=None)

    def _settled(self, live: list[Beam]) -> bool:
        """No live beam can come to beat the worst that is kept: scores only fall with tokens."""
        if not live:
            return True
        if len(self._ended) < self._width:
            return False
        worst = self._ended[-1].score(self._penalty)
        lengths = (len(live[0].tokens) + 1, self._limit)
        best = max(weighed(b.logprob, n, self._penalty) for b in live for n in lengths)
        return best <= worst

    def _ranked(self, beams: list[Beam]) -> list[Beam]:
        return sorted(beams, key=lambda beam: -beam.score(self._penalty))
