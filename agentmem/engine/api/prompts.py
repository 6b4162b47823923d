"""Engine requests from what an HTTP request asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields, check_ids, is_ids
from agentmem.engine.api.sampling import Choices, for_choice
from agentmem.engine.api.state import ChatModel
from agentmem.engine.request import Request, Sampling, TokenConstraint, TrafficClass
from agentmem.engine.sessions import (
    resolve_header_session,
    resolve_session,
    resolve_tenant,
    resolve_traffic,
)

NewConstraint = Callable[[], TokenConstraint | None]


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose request it is; the same on every engine request that comes of it."""

    session_id: str | None = None
    tenant: str | None = None
    traffic_class: TrafficClass = "interactive"


@dataclass(frozen=True, slots=True)
class Ways:
    """How the engine may go about it; no part of what is asked."""

    drafts: bool = True
    reuse: bool = True
    forced: tuple[int, ...] | None = None


def read_identity(
    body: Fields, headers: Mapping[str, str], keyed: bool, *, header_only: bool = False
) -> Identity:
    """Session, tenant and traffic class from body and headers.

    `keyed`: keys are checked here. `header_only`: the body does not name the session.
    """
    own = resolve_header_session(headers) if header_only else resolve_session(body.raw, headers)
    return Identity(
        own, resolve_tenant(body.raw, headers, keyed), resolve_traffic(body.raw, headers)
    )


def read_ways(body: Fields, model: ChatModel, choices: Choices, prompts: int = 1) -> Ways:
    """`drafts`, `reuse`, and the answer to produce: `forced_tokens` or `forced_text`."""
    drafts, reuse = body.flag("drafts", True), body.flag("reuse", True)
    ids, text = body.get("forced_tokens"), body.text("forced_text")
    if ids is None and text is None:
        return Ways(drafts, reuse)
    if ids is not None and text is not None:
        raise bad_request("give forced_tokens or forced_text, not both", "forced_text")
    name = "forced_text" if ids is None else "forced_tokens"
    if choices != Choices() or prompts != 1:
        raise bad_request(f"{name} takes a single prompt and a single answer", name)
    if ids is None:
        ids = model.tokenizer.encode(text or "", special=False)
    if not is_ids(ids) or not ids:
        raise bad_request(f"{name} must be token ids, or a text, and not empty", name)
    return Ways(False, reuse, tuple(check_ids(ids, model.core.vocab_size, name)))


def for_ways(sampling: Sampling, ways: Ways) -> Sampling:
    """Sampling under which a forced answer comes out whole."""
    if ways.forced is None:
        return sampling
    return replace(sampling, max_tokens=len(ways.forced), ignore_eos=True, stop=())


def expand(
    request_id: str,
    prompts: Sequence[Sequence[int]],
    n: int,
    sampling: Sampling,
    identity: Identity,
    constraint: NewConstraint = lambda: None,
    ways: Ways = Ways(),
) -> list[Request]:
    """One engine request for each prompt and choice, prompt by prompt.

    Choice `i` of `n` has the id `{i}_{parent}` and the seed moved by `i`; prompts of a list have
    the parent `{request_id}-{k}`.
    """
    requests = []
    for k, prompt in enumerate(prompts):
        parent = request_id if len(prompts) == 1 else f"{request_id}-{k}"
        for i in range(n):
            child = parent if n == 1 else f"{i}_{parent}"
            requests.append(
                Request(
                    request_id=child,
                    prompt=tuple(prompt),
                    sampling=for_choice(sampling, i),
                    session_id=identity.session_id,
                    tenant=identity.tenant,
                    traffic_class=identity.traffic_class,
                    constraint=None if ways.forced else constraint(),
                    forced=ways.forced,
                    drafts=ways.drafts,
                    reuse=ways.reuse,
                )
            )
    return requests


def check_window(
    prompts: Sequence[Sequence[int]], sampling: Sampling, window: int, param: str
) -> None:
    """400 when a prompt, or a prompt with the answer asked for, does not fit the window."""
    longest = max(len(prompt) for prompt in prompts)
    asked = sampling.max_tokens
    if longest + (asked or 1) <= window:
        return
    wanted = f"{longest} in the prompt" + (f" and {asked} for the answer" if asked else "")
    message = f"this model's window is {window} tokens; the request needs more: {wanted}"
    raise bad_request(message, param, "context_length_exceeded")
