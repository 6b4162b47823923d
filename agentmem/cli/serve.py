"""`agentmem serve`: the local engine alone, as an OpenAI-compatible server."""

from __future__ import annotations

import argparse
from typing import Any

from agentmem.cli.say import sayer
from agentmem.engine import arguments
from agentmem.modelfiles.fetch import fetch, resolve
from agentmem.modelfiles.registry import MODELS

GRACE_S = 30.0

HELP = """\
Serves a model with the local engine over an OpenAI-compatible API:
/v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /v1/generate, /v1/models,
/v1/sessions; /health, /ready and /metrics for monitors. Stop it with Ctrl-C: calls in progress
are finished first, a second Ctrl-C ends them.

sessions   body field session_id, else header X-Session-ID. What a session computed is kept and
           used again by requests of the same tenant: see /v1/sessions.
tenants    an API key, or body field cache_salt; tenants share nothing, not even timings.
classes    header X-Agentmem-Traffic: background lets interactive calls go first.
modes      bf16 is the reference; int8 is smaller and faster; every mode's loss is printed by
           agentmem engine perplexity.

examples:
  agentmem serve
  agentmem serve --model path/to/model.gguf --mode int8 --port 8000
  agentmem serve --host 0.0.0.0 --api-key-file keys.txt --timeout 120 --max-concurrency 32
  agentmem serve --session-dir sessions     and then: agentmem engine session export ID FILE
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
    cmd.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    cmd.add_argument("--port", type=int, default=8000, help="0 takes a free one (8000)")
    cmd.add_argument(
        "--alias", action="append", default=[], metavar="NAME",
        help="a further model name to answer to; * is any",
    )  # fmt: skip
    arguments.add_engine(cmd)
    arguments.add_limits(cmd)
    cmd.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    """Run the verb."""
    from agentmem.engine.server import serve

    engine, limits = arguments.engine_options(args), arguments.limits(args, GRACE_S)
    keys = arguments.keys(args)
    for name in (args.model, args.embedder):
        if name in MODELS:
            fetch(name, on_progress=sayer())
    serve(
        resolve(args.model),
        resolve(args.embedder) if args.embedder else None,
        args.host,
        args.port,
        engine=engine,
        aliases=frozenset(args.alias),
        limits=limits,
        keys=keys,
        session_dir=args.session_dir,
    )
    return 0
