"""GET /metrics: Prometheus text, under the names that serving dashboards know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from agentmem.engine.api.meter import family
from agentmem.engine.api.state import SERVED, Served
from agentmem.engine.request import TrafficClass

if TYPE_CHECKING:
    from agentmem.engine.stats import EngineStats

CONTENT = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]


async def metrics(request: web.Request) -> web.Response:
    """Counters and histograms since the start, gauges of now."""
    text = "\n".join(lines(request.app[SERVED])) + "\n"
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT})


def lines(served: Served) -> list[str]:
    """All lines of the reply."""
    model = served.chat or served.embed
    labels = {"model_name": model.name if model else ""}
    calls = served.gate.running
    told = family("http_requests_running", "gauge", "Model calls in progress.", [(calls, labels)])
    if served.chat is not None:
        told += _gauges(served.chat.core.stats(), labels)
        told += _totals(served.chat.core.stats(), labels)
    return told + served.meter.lines(labels)


def _gauges(stats: EngineStats, labels: Labels) -> list[str]:
    blocks = {
        "used": stats.kv_blocks_used,
        "cached": stats.kv_blocks_cached,
        "free": stats.kv_blocks_free,
    }
    share = stats.kv_blocks_used / max(1, sum(blocks.values()))
    size = [(stats.kv_bytes_used, {**labels, "state": "used"})]
    size += [(stats.kv_bytes_cached, {**labels, "state": "cached"})]

    def by_class(counts: Mapping[TrafficClass, int]) -> list[tuple[float, Labels]]:
        return [(count, {**labels, "traffic_class": kind}) for kind, count in counts.items()]

    return [
        *family("num_requests_running", "gauge", "Requests that compute.", by_class(stats.running)),
        *family("num_requests_waiting", "gauge", "Requests that wait.", by_class(stats.waiting)),
        *family(
            "queued_prompt_tokens",
            "gauge",
            "Prompt tokens of requests that have not begun.",
            by_class(stats.queued_tokens),
        ),
        *family(
            "kv_cache_usage_perc", "gauge", "Share of blocks in use; 1 is all.", [(share, labels)]
        ),
        *family(
            "kv_cache_blocks",
            "gauge",
            "Blocks of keys and values.",
            [(count, {**labels, "state": state}) for state, count in blocks.items()],
        ),
        *family("kv_cache_bytes", "gauge", "Bytes of keys and values.", size),
        *family("sessions", "gauge", "Sessions known.", [(stats.sessions, labels)]),
    ]


def _totals(stats: EngineStats, labels: Labels) -> list[str]:
    totals: dict[str, tuple[str, float]] = {
        "prefix_cache_queries_total": ("Prompt tokens looked up.", stats.queried_tokens),
        "prefix_cache_hits_total": ("Prompt tokens that the cache had.", stats.hit_tokens),
        "num_preemptions_total": ("Times a request gave up its state.", stats.preemptions),
        "recomputed_tokens_total": ("Tokens run again for that.", stats.recomputed_tokens),
        "cache_evictions_total": ("Cached blocks given up.", stats.evictions),
        "spec_decode_num_draft_tokens_total": ("Draft tokens tried.", stats.drafted_tokens),
        "spec_decode_num_accepted_tokens_total": ("Drafts that held.", stats.accepted_tokens),
        "engine_steps_total": ("Steps run.", stats.steps),
        "engine_step_seconds_total": ("Time in steps.", stats.step_s),
    }
    return [
        line
        for name, (about, value) in totals.items()
        for line in family(name, "counter", about, [(value, labels)])
    ]
