"""An engine that is no engine, for the pipe's two ends."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from benchmarks.engine_parts.wire import UnavailableError, serve


class Toy:
    def __init__(self, options: dict[str, Any]) -> None:
        if "refuse" in options:
            raise UnavailableError(options["refuse"])
        if options.get("break"):
            raise ValueError("broken\nin two lines")
        print("chatter on standard output")
        self.facts = {"mode": "toy", "given": options}

    def double(self, number: int) -> dict[str, Any]:
        print("more chatter")
        return {"doubled": 2 * number}

    def fail(self) -> None:
        raise KeyError("nothing here")

    def die(self) -> None:
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


if __name__ == "__main__":
    sys.exit(serve(Toy))
