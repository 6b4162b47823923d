"""GET /metrics: a text that parses, under the usual names, with figures that add up."""

from __future__ import annotations

import re

from agentmem.engine.api.meter import Histogram
from tests.engine.server.fakes import FakeCore, FakeEmbedder

LINE = re.compile(r'(agentmem:[a-z0-9_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')


def parsed(text: str) -> dict[tuple[str, str], float]:
    """Samples by name and labels; fails for a line that is none, or that has no type."""
    samples, kinds = {}, {}
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, f"{name} is declared twice"
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            found = LINE.fullmatch(line)
            assert found, line
            name, labels, value = found.groups()
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert name in kinds or kinds.get(base) == "histogram", line
            assert (name, labels) not in samples, line
            samples[name, labels] = float(value)
    return samples


def test_names_and_figures(start):
    server = start(FakeCore(lambda request: "four"), FakeEmbedder())
    body = {"messages": [{"role": "user", "content": "x"}]}
    prompt = sum(
        server.post("/v1/chat/completions", body).body["usage"]["prompt_tokens"] for _ in range(3)
    )
    server.post("/v1/embeddings", {"input": ["a", "b"]})
    reply = server.get("/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    samples = parsed(reply.body)
    model = 'model_name="fake"'
    assert samples["agentmem:prompt_tokens_total", model] == prompt
    assert samples["agentmem:generation_tokens_total", model] == 12
    done = f'{model},finished_reason="stop"'
    assert samples["agentmem:request_success_total", done] == 3
    assert samples["agentmem:embedding_texts_total", model] == 2
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
        assert samples[f"agentmem:{name}_count", model] == 3
        assert samples[f"agentmem:{name}_bucket", f'{model},le="+Inf"'] == 3
    assert samples["agentmem:e2e_request_latency_seconds_sum", model] > 0.017
    assert samples["agentmem:num_requests_running", f'{model},traffic_class="interactive"'] == 0
    for name in (
        "kv_cache_usage_perc",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "num_preemptions_total",
        "spec_decode_num_accepted_tokens_total",
    ):
        assert (f"agentmem:{name}", model) in samples, name
    assert ("agentmem:num_requests_waiting", f'{model},traffic_class="background"') in samples


def test_a_server_without_a_generating_model(start):
    samples = parsed(start(None, FakeEmbedder()).get("/metrics").body)
    assert ("agentmem:http_requests_running", 'model_name="fake-embed"') in samples


def test_buckets_hold_what_is_not_above_them():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 14.0
