"""GET /metrics: Prometheus text, under the names that serving dashboards know."""

from __future__ import annotations

from aiohttp import web

from agentmem.engine.api.meter import gauge
from agentmem.engine.api.state import SERVED, Served

CONTENT = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(request: web.Request) -> web.Response:
    """Counters and histograms since the start, gauges of now."""
    text = "\n".join(lines(request.app[SERVED])) + "\n"
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT})


def lines(served: Served) -> list[str]:
    """All lines of the reply."""
    model = served.chat or served.embed
    labels = {"model_name": model.name if model else ""}
    calls, requests = served.gate.running, len(served.ledger.in_flight)
    told = gauge("http_requests_running", "Model calls in progress.", [(calls, labels)])
    told += gauge("requests_in_flight", "Engine requests in flight.", [(requests, labels)])
    return told + served.meter.lines(labels)
