"""Single rows and the manifest of the synthetic run: figures that agree with each other."""

from __future__ import annotations

import hashlib
from typing import Any

from agentmem.records import Call, CallBegin, Reattribution

HISTORY = "ana"
UNITS = tuple(f"s{n}" for n in range(1, 5))
SYSTEMS = {
    "long_context": "Long context",
    "bm25": "BM25",
    "embedrag": "embedRAG",
    "mem0": "Mem0",
}
TAXONOMY_KEYS = (
    "agentic",
    "construction_llm",
    "construction_embeds",
    "structured_records",
    "store",
    "retrieval_llm",
    "retrieval_flow",
    "mutability",
)
TAXONOMIES = {
    "long_context": ("I", "no", "no", "no", "no", "raw context", "no", "whole history", "append"),
    "bm25": ("II", "no", "no", "no", "no", "inverted index", "no", "lexical top-k", "append"),
    "embedrag": ("II", "no", "no", "yes", "no", "dense index", "no", "dense top-k", "append"),
    "mem0": ("III.b", "no", "yes", "yes", "yes", "fact store", "no", "fact top-k", "consolidate"),
}
QUESTION_COUNT = 10


def new_call(call_id: str, **changes: Any) -> Call:
    """A successful chat call with consistent figures, fields replaced by `changes`."""
    values: dict[str, Any] = {
        "call_id": call_id,
        "logical_id": changes.get("logical_id", f"L{call_id}"),
        "attempt": 0,
        "scope": "sc",
        "system": "mem0",
        "history": HISTORY,
        "operation": None,
        "unit": None,
        "phase": "construction",
        "bucket": "measured",
        "stage": "construct",
        "kind": "extract",
        "endpoint": "chat",
        "model": "smollm2-135m",
        "stream": False,
        "start_s": 0.0,
        "latency_s": 1.0,
        "overhead_s": 0.0006,
        "ttft_s": 0.3,
        "status": 200,
        "outcome": "ok",
        "error": None,
        "input_tokens": 100,
        "uncached_tokens": 80,
        "cache_read_tokens": 20,
        "cache_write_tokens": 0,
        "output_tokens": 10,
        "reasoning_tokens": 0,
        "own_input_tokens": 92,
        "own_output_tokens": 10,
        "tokenizer": "smollm2",
        "sequences": None,
        "request_bytes": 900,
        "response_bytes": 400,
        "request_hash": hashlib.sha256(call_id.encode()).hexdigest(),
        "response_hash": "r",
        "finish_reason": "stop",
        "max_tokens": 256,
        "constrained": None,
        "session_id": "s",
        "sent_session_id": None,
        "traffic_class": "background",
        "sent_temperature": None,
        "seed": 7,
        "retry_count": 0,
    }
    return Call(**(values | changes))


def engine_truth(call: Call) -> dict[str, Any]:
    """`usage.agentmem` that agrees with the call's usage."""
    return {
        "version": 1,
        "request_id": f"e-{call.call_id}",
        "queue_s": 0.01 * call.latency_s,
        "prefill_s": 0.29 * call.latency_s,
        "decode_s": 0.69 * call.latency_s,
        "uncached_tokens": call.uncached_tokens,
        "cached_tokens": call.cache_read_tokens,
        "generated_tokens": call.output_tokens,
        "step_share_s": 0.98 * call.latency_s,
        "cpu_s": 1.8 * call.latency_s,
    }


def begin_of(call: Call) -> CallBegin:
    names = CallBegin.__dataclass_fields__
    return CallBegin(**{name: getattr(call, name) for name in names})


def moved(call_id: str, phase: str) -> Reattribution:
    return Reattribution(call_id, phase, None, None, "test")  # type: ignore[arg-type]


def manifest() -> dict[str, Any]:
    systems = {
        name: {
            "title": title,
            "taxonomy": dict(zip(TAXONOMY_KEYS, TAXONOMIES[name][1:], strict=True)),
            "paradigm": TAXONOMIES[name][0],
            "lock": "0" * 12,
            "environment": "host",
            "upstream": "mem0ai==1.0.11" if name == "mem0" else None,
            "fidelity": "shipped",
            "passthrough": name == "long_context",
            "stores_records": name != "long_context",
        }
        for name, title in SYSTEMS.items()
    }
    return {
        "format": 1,
        "run_id": "quickstart-5f0c",
        "identity": "5f0c" * 16,
        "status": "complete",
        "created": "2026-03-01T10:00:00Z",
        "agentmem": "0.1.0",
        "profile": {"run": {"seed": 7}, "calls": {"sampling": "fixed"}},
        "systems": systems,
        "order": list(systems),
        "engine": {
            "url": "http://127.0.0.1:1/v1",
            "kind": "local",
            "model": "smollm2-135m",
            "mode": "bf16",
            "backend": "torch",
            "threads": 2,
            "window": 8192,
            "weights": "ab" * 32,
        },
        "embedder": {"model": "minilm-l6", "dims": 384},
        "workload": {
            "name": "generated",
            "params": {"seed": 7, "unit": "session"},
            "histories": {
                HISTORY: {
                    "units": len(UNITS),
                    "questions": QUESTION_COUNT,
                    "source_tokens": 262 * len(UNITS),
                    "source_chars": 1180 * len(UNITS),
                }
            },
        },
        "machine": {"cpu": "EPYC", "cores": 2, "memory_bytes": 8 << 30, "gpu": None},
        "energy": {
            "source": "model",
            "scope": "process",
            "w_per_core": {"low": 2, "mid": 4, "high": 8},
        },
        "notes": [],
    }
