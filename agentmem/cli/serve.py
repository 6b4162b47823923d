"""`agentmem serve`: the local engine alone, as an OpenAI-compatible server."""

from __future__ import annotations

import argparse
from typing import Any

from agentmem.cli.say import sayer
from agentmem.modelfiles.fetch import fetch, resolve
from agentmem.modelfiles.registry import MODELS

HELP = """\
Serves a model with the local engine: /v1/chat/completions, /v1/completions, /v1/embeddings and
/v1/models. Session identity by body field session_id or header X-Session-ID.

examples:
  agentmem serve
  agentmem serve --model path/to/model.gguf --port 8000
"""


def add(verbs: Any) -> None:
    """Register the verb."""
    cmd = verbs.add_parser(
        "serve",
        help="serve a model with the local engine",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cmd.add_argument(
        "--model", default="smollm2-135m", help="name, GGUF file or safetensors folder"
    )
    cmd.add_argument("--embedder", default="minilm-l6", help="name or folder; '' for none")
    cmd.add_argument("--host", default="127.0.0.1")
    cmd.add_argument("--port", type=int, default=8000)
    cmd.add_argument("--mode", default="bf16", choices=("bf16", "fp32"))
    cmd.add_argument("--threads", type=int, default=None)
    cmd.add_argument("--window", type=int, default=None, help="smaller window than the model's")
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the verb."""
    from agentmem.engine.server import serve

    for name in (args.model, args.embedder):
        if name in MODELS:
            fetch(name, on_progress=sayer())
    embedder = resolve(args.embedder) if args.embedder else None
    serve(
        resolve(args.model),
        embedder,
        args.host,
        args.port,
        mode=args.mode,
        threads=args.threads,
        window=args.window,
    )
    return 0
