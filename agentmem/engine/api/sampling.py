"""How to sample, from the fields of a completion or chat request."""

from __future__ import annotations

from dataclasses import replace

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
    "use_beam_search",
)
"""Fields that would change the output, are accepted, and are not carried out; the response's
`usage.agentmem.ignored` lists those that were set to something."""


def read_sampling(body: Fields, extra_stops: tuple[str, ...] = ()) -> Sampling:
    """Sampling of one choice. Temperature is 1 unless given, as in the OpenAI API."""
    temperature = body.number("temperature", 0.0, 100.0)
    top_p = body.number("top_p", 0.0, 1.0)
    if top_p == 0.0:
        raise bad_request("top_p must be above 0", "top_p")
    top_k = body.integer("top_k", -1, 2**31)
    longest = 2**31
    limit = body.integer("max_completion_tokens", 1, longest)
    if limit is None:
        limit = body.integer("max_tokens", 1, longest)
    return Sampling(
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        top_k=max(top_k or 0, 0),
        seed=body.integer("seed", -MAX_SEED, MAX_SEED),
        max_tokens=limit,
        stop=body.strings("stop", MAX_STOPS) + extra_stops,
        ignore_eos=body.flag("ignore_eos"),
    )


def read_choices(body: Fields) -> int:
    """`n`, the number of answers to each prompt."""
    n = body.integer("n", 1, MAX_CHOICES) or 1
    best_of = body.integer("best_of", 1, MAX_CHOICES)
    if best_of is not None and best_of != n:
        raise bad_request("best_of other than n is not supported", "best_of")
    return n


def for_choice(sampling: Sampling, index: int) -> Sampling:
    """Sampling of the choice at `index`: the seed moves on, so that choices differ."""
    if sampling.seed is None or index == 0:
        return sampling
    return replace(sampling, seed=sampling.seed + index)


def refuse_logprobs(body: Fields) -> None:
    """400 when log-probabilities are asked for, which this server does not give."""
    for name in ("logprobs", "top_logprobs", "prompt_logprobs"):
        value = body.get(name)
        # Completions write "none wanted" as null, chat as false; 0 still asks for the token's own.
        if value is not None and value is not False and not (name == "top_logprobs" and value == 0):
            raise bad_request(f"{name} is not supported by this server", name, "unsupported")


def not_honoured(body: Fields) -> list[str]:
    """Names of the fields in NOT_HONOURED that were set to something with an effect."""
    neutral = {"repetition_penalty": 1}
    return [name for name in NOT_HONOURED if body.get(name) and body.get(name) != neutral.get(name)]
