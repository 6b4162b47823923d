"""`python -m agentmem.engine`: the local engine as a process."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from agentmem.engine import arguments
from agentmem.engine.server import serve
from agentmem.errors import AgentMemError
from agentmem.modelfiles.fetch import resolve

GRACE_S = 2.0
"""A run that stops its engine does not wait for long answers."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m agentmem.engine",
        description="Serve a chat model and an embedder over an OpenAI-compatible API on loopback.",
    )
    top.add_argument("--model", help="a known model's name, a GGUF file or a safetensors folder")
    top.add_argument("--embedder", help="a known embedder's name or a sentence-transformers folder")
    top.add_argument("--host", default="127.0.0.1")
    top.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    top.add_argument(
        "--alias", action="append", default=[], help="a further model name to answer to; * is any"
    )
    top.add_argument(
        "--embed-overflow",
        choices=("truncate", "error"),
        default="truncate",
        help="what to do with texts past the embedder's window; truncation is reported in usage",
    )
    top.add_argument(
        "--ready-fd", type=int, help="descriptor for the ready line; stdout by default"
    )
    top.add_argument("--parent-pid", type=int, help="end when this process ends")
    arguments.add_engine(top)
    arguments.add_limits(top)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop; an expected failure is one line on stderr and its exit code."""
    args = parser().parse_args(argv)
    logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s")
    try:
        serve(
            _path(args.model),
            _path(args.embedder),
            args.host,
            args.port,
            engine=arguments.engine_options(args),
            limits=arguments.limits(args, GRACE_S),
            keys=arguments.keys(args),
            session_dir=args.session_dir,
            ready_fd=args.ready_fd,
            parent_pid=args.parent_pid,
            aliases=frozenset(args.alias),
            truncate_embeddings=args.embed_overflow == "truncate",
        )
    except AgentMemError as err:
        print(f"agentmem engine: {err}", file=sys.stderr)
        return err.exit_code
    except KeyboardInterrupt:  # while loading; later the loop takes the signal
        return 130
    return 0


def _path(name: str | None) -> Path | None:
    return None if name is None else resolve(name)


if __name__ == "__main__":
    sys.exit(main())
