"""How to sample, from the fields of a completion or chat request."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields
from agentmem.engine.request import Sampling

MAX_CHOICES = 32
MAX_STOPS = 16
MAX_SEED = 2**63 - 1

NOT_HONOURED = (
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "min_p",
    "min_tokens",
)
"""Fields that would change the output, are accepted, and are not carried out; the response's
`usage.agentmem.ignored` lists those that were set to something."""


def read_sampling(
    body: Fields, extra_stops: tuple[str, ...] = (), logprobs: int | None = None
) -> Sampling:
    """Sampling of one choice. Temperature is 1 unless given, as in the OpenAI API."""
    temperature = body.number("temperature", 0.0, 100.0)
    top_p = body.number("top_p", 0.0, 1.0)
    if top_p == 0.0:
        raise bad_request("top_p must be above 0", "top_p")
    top_k = body.integer("top_k", -1, 2**31)
    longest = 2**31
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    stated = [body.integer(name, 1, longest) for name in names]
    limit = next((one for one in stated if one is not None), None)
    return Sampling(
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        top_k=max(top_k or 0, 0),
        seed=body.integer("seed", -MAX_SEED, MAX_SEED),
        max_tokens=limit,
        stop=body.strings("stop", MAX_STOPS) + extra_stops,
        ignore_eos=body.flag("ignore_eos"),
        logprobs=logprobs,
    )


@dataclass(frozen=True, slots=True)
class Choices:
    """How many answers to each prompt: `width` are made, the best `n` are given."""

    n: int = 1
    width: int = 1
    beams: bool = False
    length_penalty: float = 1.0

    @property
    def ranked(self) -> bool:
        """Answers are compared, so that nothing can be said before all of them have ended."""
        return self.beams or self.width > self.n


def read_choices(body: Fields) -> Choices:
    """`n`, `best_of`, `use_beam_search` and `length_penalty`; 400 where they contradict."""
    n = body.integer("n", 1, MAX_CHOICES) or 1
    width = body.integer("best_of", 1, MAX_CHOICES) or n
    if width < n:
        raise bad_request("best_of must be n at least", "best_of")
    beams = body.flag("use_beam_search")
    penalty = body.number("length_penalty", -10.0, 10.0)
    choices = Choices(n, width, beams, 1.0 if penalty is None else penalty)
    if choices.ranked and body.flag("stream"):
        message = "best_of above n and use_beam_search cannot be streamed: the best is known last"
        raise bad_request(message, "stream", "unsupported")
    return choices


def for_choice(sampling: Sampling, index: int) -> Sampling:
    """Sampling of the choice at `index`: the seed moves on, so that choices differ."""
    if sampling.seed is None or index == 0:
        return sampling
    return replace(sampling, seed=sampling.seed + index)


def not_honoured(body: Fields) -> list[str]:
    """Names of the fields in NOT_HONOURED that were set to something with an effect."""
    neutral = {"repetition_penalty": 1}
    return [name for name in NOT_HONOURED if body.get(name) and body.get(name) != neutral.get(name)]
