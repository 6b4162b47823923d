"""Engine requests from what an HTTP request asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields
from agentmem.engine.api.sampling import for_choice
from agentmem.engine.request import Request, Sampling, TokenConstraint, TrafficClass
from agentmem.engine.sessions import resolve_session, resolve_tenant, resolve_traffic

NewConstraint = Callable[[], TokenConstraint | None]


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose request it is; the same on every engine request that comes of it."""

    session_id: str | None
    tenant: str | None
    traffic_class: TrafficClass


def read_identity(body: Fields, headers: Mapping[str, str]) -> Identity:
    """Session, tenant and traffic class from body and headers."""
    return Identity(
        resolve_session(body.raw, headers),
        resolve_tenant(body.raw, headers),
        resolve_traffic(body.raw, headers),
    )


def expand(
    request_id: str,
    prompts: Sequence[Sequence[int]],
    n: int,
    sampling: Sampling,
    identity: Identity,
    constraint: NewConstraint = lambda: None,
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
                    constraint=constraint(),
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
