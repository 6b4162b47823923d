"""What the gateway adds to a call: direct and through it, interleaved in one run.

Three processes, as in a run: a model server that answers at once, the gateway, and a client that
keeps its connections alive and takes turns between the two ways, so that a disturbance of the
machine hits both.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import json
import multiprocessing as mp
import statistics
import time
from array import array
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentmem.gateway import Gateway, GatewayOptions, Upstream
from agentmem.records import Scope

WARM_UP = 30
DIMS = 384
CHUNKS = 32


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """(path, body) by name; sizes as memory systems send them."""
    short = [{"role": "user", "content": "Which city did she move to? " * 10}]
    long = [{"role": "user", "content": "Extract the facts from this conversation. " * 700}]
    texts = ["a sentence of some twenty words to be embedded for later search"] * 16
    return {
        "chat, 0.3 kB": ("/chat/completions", {"model": "m", "messages": short}),
        "chat, 30 kB": ("/chat/completions", {"model": "m", "messages": long}),
        f"stream, {CHUNKS} chunks": (
            "/chat/completions",
            {"model": "m", "messages": short, "stream": True},
        ),
        "embed, base64": (
            "/embeddings",
            {"model": "e", "input": texts, "encoding_format": "base64"},
        ),
        "embed, floats": ("/embeddings", {"model": "e", "input": texts}),
    }


def replies() -> dict[str, bytes]:
    """Complete HTTP replies, made once."""
    usage = {"prompt_tokens": 90, "completion_tokens": CHUNKS, "total_tokens": 90 + CHUNKS}
    message = {"role": "assistant", "content": "word " * CHUNKS}
    chat = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    vector = [round(i / DIMS - 0.5, 6) for i in range(DIMS)]
    coded = base64.b64encode(array("f", vector).tobytes()).decode()
    floats = {"data": [{"index": i, "embedding": vector} for i in range(16)], "usage": usage}
    texts = {"data": [{"index": i, "embedding": coded} for i in range(16)], "usage": usage}
    head = "HTTP/1.1 200 OK\r\nContent-Type: {}\r\n{}\r\n"
    found = {}
    for name, body in (("chat", chat), ("floats", floats), ("base64", texts)):
        raw = json.dumps(body).encode()
        found[name] = head.format("application/json", f"Content-Length: {len(raw)}\r\n").encode()
        found[name] += raw
    delta = {"choices": [{"index": 0, "delta": {"content": "word "}}]}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    events = [delta] * CHUNKS + [last, {"choices": [], "usage": usage}]
    parts = [f"data: {json.dumps(e)}\n\n" for e in events] + ["data: [DONE]\n\n"]
    chunked = "".join(f"{len(p):x}\r\n{p}\r\n" for p in parts) + "0\r\n\r\n"
    found["stream"] = head.format("text/event-stream", "Transfer-Encoding: chunked\r\n").encode()
    found["stream"] += chunked.encode()
    return found


def serve_model(port_to: Connection) -> None:
    """A model server that takes no time: the least it can do in HTTP."""
    ready = replies()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(size)
            kind = "base64" if b'"base64"' in body else "floats"
            if b"/embeddings" not in head:
                kind = "stream" if b'"stream"' in body else "chat"
            writer.write(ready[kind])

    async def main() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        port_to.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def measure(urls: tuple[str, str], calls: int, link: Connection) -> None:
    """For each case named on `link`: seconds per call, ([direct], [through])."""
    ways = [(urlsplit(url).path, _connection(url)) for url in urls]
    known = cases()
    while (name := link.recv()) is not None:
        path, body = known[name]
        raw = json.dumps(body).encode()
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(WARM_UP + calls):
            for (base, connection), took in zip(ways, times, strict=True):
                began = time.perf_counter()
                connection.request("POST", base + path, raw, {"Content-Type": "application/json"})
                reply = connection.getresponse()
                reply.read()
                if turn >= WARM_UP:
                    took.append(time.perf_counter() - began)
                assert reply.status == 200, reply.status
        link.send(times)


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)


def run(calls: int) -> dict[str, dict[str, float]]:
    """Milliseconds by case: medians both ways, what the gateway adds, and its own account."""
    context = mp.get_context("spawn")
    here, there = context.Pipe()
    model = context.Process(target=serve_model, args=(there,), daemon=True)
    model.start()
    direct = f"http://127.0.0.1:{here.recv()}/v1"
    options = GatewayOptions(token_counter=lambda text: len(text.split()), tokenizer_name="words")
    table = {}
    with Gateway(Upstream(direct), sink=lambda row: None, options=options) as gateway:
        through = gateway.open_scope(Scope("bench", "bench", "h", "bench"))
        gateway.set_phase("bench", "construction", "measured", "u")
        client = context.Process(target=measure, args=((direct, through), calls, there))
        client.start()
        for name in cases():
            cpu_s, seen = time.process_time(), len(gateway.calls_of("bench"))
            here.send(name)
            plain, metered = here.recv()
            gateway.wait_quiet("bench", 0.0, 10.0)
            cpu_s = (time.process_time() - cpu_s) / (WARM_UP + calls)
            own = [c.overhead_s or 0.0 for c in gateway.calls_of("bench")[seen + WARM_UP :]]
            table[name] = _summary(plain, metered, own) | {"gateway_cpu_ms": cpu_s * 1e3}
        here.send(None)
        client.join()
    model.terminate()
    model.join()
    return table


def _summary(plain: list[float], metered: list[float], own: list[float]) -> dict[str, float]:
    added = [m - p for p, m in zip(plain, metered, strict=True)]
    middle = statistics.median
    return {
        "direct_ms": middle(plain) * 1e3,
        "through_ms": middle(metered) * 1e3,
        "ratio": middle(metered) / middle(plain),
        "added_p50_ms": middle(added) * 1e3,
        "added_p90_ms": statistics.quantiles(added, n=10)[-1] * 1e3,
        "booked_p50_ms": middle(own) * 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=300, help="pairs of calls per case (300)")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    given = parser.parse_args()
    table = run(given.calls)
    columns = list(next(iter(table.values())))
    print(f"{'case':<20}" + "".join(f"{name:>16}" for name in columns))
    for name, row in table.items():
        print(f"{name:<20}" + "".join(f"{row[column]:>16.3f}" for column in columns))
    if given.json is not None:
        given.json.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
