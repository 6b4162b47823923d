"""Command line of the fake upstream: prints one JSON line when it listens."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading

from tests.fake.scripts import SCRIPTS
from tests.fake.server import FakeUpstream


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fake.upstream", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 lets the system choose (default)")
    parser.add_argument("--dims", type=int, default=32, help="width of embedding vectors")
    parser.add_argument("--max-model-len", type=int, default=8192, help="context window, tokens")
    parser.add_argument("--usage", choices=["asked", "always", "never"], default="asked")
    parser.add_argument(
        "--cache", choices=["none", "openai", "deepseek", "anthropic", "agentmem"], default="none"
    )
    parser.add_argument("--first-token-s", type=float, default=0.0)
    parser.add_argument("--token-s", type=float, default=0.0)
    parser.add_argument("--script", choices=sorted(SCRIPTS), help="who writes the replies")
    given = vars(parser.parse_args(argv))
    script = given.pop("script")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with FakeUpstream(on_chat=SCRIPTS.get(script), **given) as fake:
        print(json.dumps({"ready": True, "url": fake.url, "pid": os.getpid()}), flush=True)
        stop.wait()
    print(json.dumps({"requests": len(fake.bill.of()), "tokens": fake.bill.tokens()}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
