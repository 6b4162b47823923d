"""How a replayed call says so in its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentmem.gateway.usage import Usage

_OF_THEN = ("request_id", "choices")
"""Besides times, what belongs to the request that was once computed."""


def marked(
    engine: Mapping[str, Any] | None, recorded_s: Mapping[str, float | None]
) -> dict[str, Any]:
    """`usage.agentmem` of a replayed call: counts in place, all times moved under `recorded`.

    So no reader takes an old measurement for one of this run.
    """
    told = dict(engine or {})
    then = {k: v for k, v in told.items() if k.endswith("_s") or k in _OF_THEN}
    now = {k: v for k, v in told.items() if k not in then}
    return {**now, "replayed": True, "recorded": {**then, **recorded_s}}


def forced_mark(
    engine: Mapping[str, Any] | None, then: Usage, recorded_s: Mapping[str, float | None]
) -> dict[str, Any]:
    """`usage.agentmem` of a reply that an engine was made to produce: all of it is of now, and
    under `recorded` stands what the reply had cost when it was recorded.
    """
    tokens = {"input_tokens": then.input, "output_tokens": then.output}
    return {**(engine or {}), "forced": True, "recorded": {**tokens, **recorded_s}}
