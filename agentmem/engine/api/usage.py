"""What a response says about its cost: OpenAI's `usage`, and the engine's account inside it."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

from agentmem.engine.request import Request, RequestRecord

VERSION = 1
KEPT = 1024
MOST_LISTED = 64
"""Accounts told one by one; a beam search has more, and then only their sum is told."""

_SECONDS = ("queue_s", "prefill_s", "decode_s")
_TOKENS = (
    "uncached_tokens",
    "cached_tokens",
    "generated_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "preemptions",
    "recomputed_tokens",
)
_MAYBE = ("state_bytes", "step_share_s", "cpu_s", "read_bytes", "operations")


def prompt_hash(prompt: Sequence[int]) -> str:
    """Digest of a prompt's token ids."""
    return _digest(b"".join(t.to_bytes(4, "little") for t in prompt))


def account(record: RequestRecord, request: Request, engine: dict[str, Any]) -> dict[str, Any]:
    """One engine request's `usage.agentmem`; `engine` says model, mode and backend."""
    fields = ("request_id", "session_id", "traffic_class", *_SECONDS, "ttft_s", *_TOKENS, *_MAYBE)
    told = {name: getattr(record, name) for name in fields}
    return {"version": VERSION, **told, **engine, "prompt_hash": prompt_hash(request.prompt)}


def total(request_id: str, accounts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Accounts of one HTTP request in one: itself when single, else sums with `choices` beside.

    A sum over an unknown is unknown. `ttft_s` is the earliest.
    """
    if len(accounts) == 1:
        return {**accounts[0], "request_id": request_id}
    summed = {name: sum(a[name] for a in accounts) for name in _SECONDS + _TOKENS}
    maybe = {name: _sum(a[name] for a in accounts) for name in _MAYBE}
    first = [a["ttft_s"] for a in accounts if a["ttft_s"] is not None]
    count = sum(a.get("engine_requests", 1) for a in accounts)
    whole = {
        **accounts[0],
        "request_id": request_id,
        **summed,
        **maybe,
        "ttft_s": min(first, default=None),
        "prompt_hash": _digest("".join(a["prompt_hash"] for a in accounts).encode()),
        "engine_requests": count,
    }
    whole.pop("choices", None)
    if count == len(accounts) <= MOST_LISTED:
        whole["choices"] = list(accounts)
    return whole


def usage(told: dict[str, Any]) -> dict[str, Any]:
    """OpenAI's `usage` with the account under `agentmem`.

    The prompt is counted once for each engine request (`n` choices: n times), because each is
    looked up or computed; so `prompt_tokens` is always uncached + cached.
    """
    prompt = told["uncached_tokens"] + told["cached_tokens"]
    generated = told["generated_tokens"]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": told["cached_tokens"]},
        "agentmem": told,
    }


class Ledger:
    """Accounts of the latest requests, also those whose client has gone; and who is in flight."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, str | None] = OrderedDict()
        self._told: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()
        self.in_flight: dict[str, str] = {}
        self.finished = 0

    def begin(self, parent: str, request_id: str) -> None:
        """An engine request was submitted for the HTTP request `parent`."""
        self.in_flight[request_id] = parent

    def own(self, parent: str, owner: str | None) -> None:
        """`owner` (a key's digest) may ask for the account of the HTTP request `parent`."""
        self._owners[parent] = owner
        while len(self._owners) > 4 * KEPT:
            self._owners.popitem(last=False)

    def end(self, parent: str, request_id: str, told: dict[str, Any]) -> None:
        """An engine request ended."""
        self.in_flight.pop(request_id, None)
        self.finished += 1
        kept = self._told.setdefault(parent, [])
        kept.append(told)
        if len(kept) > MOST_LISTED:
            kept[:] = [total(parent, kept)]
        while len(self._told) > KEPT:
            gone, _ = self._told.popitem(last=False)
            self._owners.pop(gone, None)

    def knows(self, parent: str) -> bool:
        """An HTTP request of this id has been seen."""
        return parent in self._told or parent in self.in_flight.values()

    def account(self, parent: str) -> dict[str, Any]:
        """The account of an HTTP request of which something has ended."""
        return total(parent, self._told[parent])

    def find(self, parent: str, owner: str | None = None) -> dict[str, Any] | None:
        """The account of an HTTP request, or None when it is not known (any more) to `owner`."""
        accounts = self._told.get(parent)
        if self._owners.get(parent) != owner:
            return None
        return total(parent, accounts) if accounts else None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if any(v is None for v in known) else sum(v for v in known if v is not None)
