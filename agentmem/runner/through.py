"""A recording run through an engine: who serves, what systems are told, which tokens are forced."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from agentmem.errors import DataError, UsageError
from agentmem.gateway.forcing import Forcing
from agentmem.modelfiles.fetch import resolve
from agentmem.modelfiles.registry import MODELS
from agentmem.modelfiles.tokenizer import Tokenizer, load_tokenizer, reference_tokenizer
from agentmem.profile import Profile
from agentmem.runner.engine import ServerFacts

_TAG = "<tool_call>"


def check(served: ServerFacts) -> None:
    """UsageError for a server that cannot be made to produce given tokens."""
    if not served.ours:
        raise UsageError(
            f"--replay-mode through-engine needs an engine of agentmem's, and the server at "
            f"{served.url} cannot be made to produce given tokens; set engine.url=local, or use "
            "--replay-mode at-once"
        )


def told(recorded: ServerFacts, served: ServerFacts) -> ServerFacts:
    """What systems hear of the server: what they heard when the recording was made, or they would
    ask for other things. The address is the engine's.
    """
    return dataclasses.replace(
        served,
        model=recorded.model,
        embed_model=recorded.embed_model,
        embed_dims=recorded.embed_dims,
        window_tokens=recorded.window_tokens,
    )


def forcing(
    profile: Profile, served: ServerFacts, recorded: ServerFacts, tokenizer: str | None
) -> Forcing:
    """How replies are forced on this engine; `tokenizer` is the name of the recording's."""
    names, same = (served.model, served.embed_model), _same_weights(served, recorded)
    if served.kind != "local":
        return Forcing(*names, same_tokens=same)
    own = load_tokenizer(resolve(profile.engine.model))
    return Forcing(
        *names,
        lambda text: own.encode(text, special=False),
        _end_of(own),
        _TAG in (own.chat_template or ""),
        same or own.name == tokenizer,
    )


def _same_weights(served: ServerFacts, recorded: ServerFacts) -> bool:
    return served.weights is not None and served.weights == recorded.weights


def _end_of(tokenizer: Tokenizer) -> int | None:
    """The mark that ends a turn in the model's template, so that later prompts repeat it."""
    template = tokenizer.chat_template or ""
    in_use = [t for t in tokenizer.eos_ids if tokenizer.token_text(t) in template]
    return next(iter([*in_use, *tokenizer.eos_ids]), None)


def tokenizer_of(wanted: str, *names: str) -> Tokenizer:
    """The tokenizer that a recording's prompts were cut with, from the model files that are here.

    DataError when none of them has it.
    """
    found = []
    for tokenizer in _tokenizers(*names):
        if tokenizer.name == wanted:
            return tokenizer
        found.append(tokenizer.name)
    raise DataError(
        f"the recording was made with tokenizer {wanted}; there is only {', '.join(found)}"
    )


def _tokenizers(*names: str) -> Iterator[Tokenizer]:
    yield reference_tokenizer("words-v1")
    for name in dict.fromkeys(names):
        try:
            yield load_tokenizer(resolve(name))
        except DataError:
            continue


def known_model(name: str) -> tuple[str, ...]:
    """The name, where it is one whose file can be fetched."""
    return (name,) if name in MODELS else ()
