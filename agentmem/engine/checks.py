"""Whether a request can be run at all."""

from __future__ import annotations

import math

from agentmem.engine.errors import RequestError
from agentmem.engine.request import Request, Sampling

DEFAULT_MAX_TOKENS = 256
MOST_LOGPROBS = 128


def check_sampling(sampling: Sampling) -> None:
    """RequestError naming the first parameter that cannot be used."""
    s = sampling
    wrong = {
        "temperature": not (math.isfinite(s.temperature) and s.temperature >= 0),
        "top_p": not 0 < s.top_p <= 1,
        "top_k": s.top_k < 0,
        "max_tokens": s.max_tokens is not None and s.max_tokens < 1,
        "logprobs": s.logprobs is not None and not 0 <= s.logprobs <= MOST_LOGPROBS,
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            value = getattr(s, name)
            raise RequestError("invalid_sampling", f"{name} cannot be {value}", name)


def room(request: Request, window: int, vocabulary: int) -> int:
    """Tokens that may be generated; RequestError when the prompt or the wish is too long."""
    prompt, forced = len(request.prompt), request.forced
    wanted = request.sampling.max_tokens if forced is None else max(1, len(forced))
    if prompt == 0:
        raise RequestError("invalid_prompt", "the prompt is empty", "prompt")
    for name, tokens in (("prompt", request.prompt), ("forced", forced or (0,))):
        if min(tokens) < 0 or max(tokens) >= vocabulary:
            limit = f"0..{vocabulary - 1}"
            raise RequestError("invalid_prompt", f"{name} ids must be {limit}", name)
    if prompt + (wanted or 1) > window:
        asked = "" if wanted is None else f" and {wanted} for the answer"
        raise RequestError(
            "context_length_exceeded",
            f"the window is {window} tokens; the prompt has {prompt}{asked}",
            "messages",
        )
    return wanted or min(DEFAULT_MAX_TOKENS, window - prompt)
