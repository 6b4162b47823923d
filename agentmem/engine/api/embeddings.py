"""POST /v1/embeddings."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

from agentmem.engine.api.completions import split_input
from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import Fields, check_ids, read_fields
from agentmem.engine.api.limits import shutting_down, within
from agentmem.engine.api.prompts import Identity, read_identity
from agentmem.engine.api.state import SERVED, EmbedModel, Served
from agentmem.engine.api.usage import VERSION
from agentmem.engine.errors import EmbeddingStoppedError

MOST_INPUTS = 8192


@dataclass(frozen=True, slots=True)
class Batch:
    """Vectors float32 [n, dims] and what they cost. Times in seconds."""

    vectors: NDArray[np.float32]
    counts: list[int]
    """Tokens computed for each text, after truncation."""
    whole: list[int]
    """Tokens of each text before truncation."""
    queue_s: float
    compute_s: float


async def embeddings(request: web.Request) -> web.Response:
    """Embed texts, as lists of floats or base64 of little-endian float32."""
    body, served = await read_fields(request), request.app[SERVED]
    model = served.embed_model(body)
    style = body.text("encoding_format") or "float"
    if style not in ("float", "base64"):
        raise bad_request("encoding_format must be float or base64", "encoding_format")
    dims = body.integer("dimensions", 1, 2**31)
    if dims not in (None, model.embedder.dims):
        message = f"this model has {model.embedder.dims} dimensions and cannot give {dims}"
        raise bad_request(message, "dimensions", "unsupported")
    identity = read_identity(body, request.headers, bool(served.keys))
    texts = read_inputs(body, model)
    request_id = served.next_id("embd", request.headers)
    served.ledger.own(request_id, served.owner(request.headers))
    served.ledger.begin(request_id, request_id)
    try:
        async with within(served.limits.timeout_s):
            batch = await run(served, model, texts, identity)
    except BaseException:
        served.ledger.in_flight.pop(request_id, None)
        raise
    told = account(request_id, identity, model, batch)
    served.ledger.end(request_id, request_id, told)
    served.meter.count("embedding_requests_total")
    served.meter.count("embedding_texts_total", len(texts))
    data = [
        {"object": "embedding", "index": at, "embedding": encode(vector, style)}
        for at, vector in enumerate(batch.vectors)
    ]
    tokens = sum(batch.counts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "agentmem": told}
    reply = {"object": "list", "model": model.name, "data": data, "usage": usage}
    return web.json_response(reply, headers={"X-Request-Id": request_id})


def read_inputs(body: Fields, model: EmbedModel) -> list[str]:
    """`input` as texts; token ids are those of the embedder's own tokenizer."""
    items = split_input(body.get("input"), "input")
    if len(items) > MOST_INPUTS:
        raise bad_request(f"input takes at most {MOST_INPUTS} items", "input")
    tokenizer = model.embedder.tokenizer
    texts = [
        item if isinstance(item, str)
        else tokenizer.decode(check_ids(item, tokenizer.vocab_size, "input"))
        for item in items
    ]  # fmt: skip
    if not all(texts):
        raise bad_request("input must not contain an empty string", "input")
    return texts


async def run(served: Served, model: EmbedModel, texts: list[str], identity: Identity) -> Batch:
    """Embed on the thread of the request's class, so that the event loop goes on."""
    arrived, abandoned = time.monotonic(), threading.Event()
    embedder = model.embedder

    def stopped() -> bool:
        return abandoned.is_set() or served.gate.stopped

    def work() -> Batch:
        if stopped():
            raise shutting_down()
        begun = time.monotonic()
        ids = embedder.encode(texts)
        whole = [len(one) for one in ids]
        if not model.truncate and (longest := max(whole)) > model.window:
            message = f"this model's window is {model.window} tokens; one input has {longest}"
            raise bad_request(message, "input", "context_length_exceeded")
        read_s = time.monotonic() - begun
        vectors, compute_s = embedder.compute(
            ids, traffic_class=identity.traffic_class, stopped=stopped
        )
        model.requests += 1
        model.texts += len(texts)
        compute_s += read_s
        queue_s = max(0.0, time.monotonic() - arrived - compute_s)
        counts = [min(count, model.window) for count in whole]
        return Batch(vectors, counts, whole, queue_s, compute_s)

    pool = model.pool(identity.traffic_class)
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, work)
    except EmbeddingStoppedError:
        raise shutting_down() from None
    finally:
        abandoned.set()


def account(request_id: str, identity: Identity, model: EmbedModel, batch: Batch) -> dict[str, Any]:
    """`usage.agentmem` of an embedding request: nothing cached, nothing generated.

    The session is only told here: embeddings have no state that could belong to one.
    """
    return {
        "version": VERSION,
        "request_id": request_id,
        "session_id": identity.session_id,
        "traffic_class": identity.traffic_class,
        "queue_s": batch.queue_s,
        "prefill_s": batch.compute_s,
        "decode_s": 0.0,
        "ttft_s": None,
        "uncached_tokens": sum(batch.counts),
        "cached_tokens": 0,
        "generated_tokens": 0,
        "drafted_tokens": 0,
        "accepted_tokens": 0,
        "state_bytes": None,
        "step_share_s": batch.compute_s,
        "cpu_s": None,
        **model.facts(),
        "inputs": len(batch.counts),
        "truncated_inputs": sum(count > model.window for count in batch.whole),
    }


def encode(vector: NDArray[np.float32], style: str) -> list[float] | str:
    """One vector for the response."""
    if style == "float":
        return [float(x) for x in vector]
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
