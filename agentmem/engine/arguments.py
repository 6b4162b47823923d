"""Command-line options of a server, the same for `agentmem serve` and the engine's own process."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from agentmem.engine.api.limits import Limits, read_keys
from agentmem.engine.kv.retention import MAX_TTL_S
from agentmem.engine.options import KV, Backend, EngineOptions, Mode
from agentmem.errors import UsageError

KEYS_VARIABLE = "AGENTMEM_API_KEYS"
MB = 2**20
MOST_MB = 2**30
"""A petabyte."""


def add_engine(parser: argparse.ArgumentParser) -> None:
    """How the engine computes."""
    group = parser.add_argument_group("engine")
    modes, kinds = " ".join(get_args(Mode)), " ".join(get_args(KV))
    group.add_argument("--mode", default="bf16", help=f"format of the weights: {modes} (bf16)")
    group.add_argument(
        "--kv",
        default="auto",
        choices=get_args(KV),
        metavar="KIND",
        help=f"format of keys and values: {kinds} (auto: as the weights)",
    )
    group.add_argument(
        "--backend",
        default="auto",
        choices=get_args(Backend),
        metavar="NAME",
        help="kernels: auto torch native (auto: native where built)",
    )
    group.add_argument(
        "--calibration",
        type=Path,
        metavar="DIR",
        help="scales that `agentmem engine calibrate` wrote, for --mode fp8",
    )
    group.add_argument(
        "--invariant", action="store_true", help="the same answer whatever runs beside it; slower"
    )
    group.add_argument(
        "--no-drafts", action="store_true", help="never guess the next tokens from the prompt"
    )
    group.add_argument("--threads", type=int, help="CPU threads (all cores)")
    group.add_argument(
        "--window", type=int, metavar="TOKENS", help="smaller window than the model's"
    )
    group.add_argument(
        "--cache-mb",
        type=float,
        metavar="MB",
        default=1024,
        help="memory for keys and values (1024); one full window always fits",
    )
    group.add_argument(
        "--session-ttl",
        type=float,
        metavar="S",
        default=300,
        help="seconds a session's state is kept before others' (300)",
    )
    group.add_argument("--max-running", type=int, metavar="N", help="sequences computed together")
    group.add_argument("--step-tokens", type=int, metavar="N", help="tokens of one step at most")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Who is let in, and how much."""
    group = parser.add_argument_group("access and limits")
    group.add_argument(
        "--api-key",
        action="append",
        default=[],
        metavar="KEY",
        help="let in who knows it (repeatable); keys do not share cache or "
        f"sessions. Also from {KEYS_VARIABLE}, comma-separated",
    )
    group.add_argument("--api-key-file", type=Path, metavar="FILE", help="keys, one a line")
    group.add_argument(
        "--max-body-mb",
        type=float,
        metavar="MB",
        default=32,
        help="largest request (32); larger ones get 413",
    )
    group.add_argument(
        "--max-concurrency",
        type=int,
        metavar="N",
        help="model calls answered at a time; more get 429",
    )
    group.add_argument(
        "--max-background-tokens",
        type=int,
        metavar="N",
        help="queued background prompt tokens; more get 429 with Retry-After",
    )
    group.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        help="seconds a call may take; then it gets 504 and the engine is free",
    )
    group.add_argument(
        "--grace",
        type=float,
        metavar="S",
        default=None,
        help="seconds calls may go on once told to stop",
    )
    group.add_argument(
        "--session-ledger",
        type=Path,
        metavar="DIR",
        help="this server's own notes of which sessions moved; without, a restart forgets them",
    )
    group.add_argument(
        "--session-dir",
        type=Path,
        metavar="DIR",
        help="allow sessions to be exported to and imported from this folder",
    )


def engine_options(args: argparse.Namespace) -> EngineOptions:
    """What add_engine read."""
    check(0 < args.cache_mb <= MOST_MB, f"--cache-mb must be above 0 and at most {MOST_MB:g}")
    check(0 <= args.session_ttl <= MAX_TTL_S, f"--session-ttl must be 0 to {MAX_TTL_S:g} seconds")
    for name, least in (("max_running", 1), ("step_tokens", 1), ("max_background_tokens", 0)):
        value, option = getattr(args, name), "--" + name.replace("_", "-")
        check(value is None or value >= least, f"{option} must be {least} at least; got {value}")
    options = EngineOptions(
        mode=args.mode,
        kv=args.kv,
        backend=args.backend,
        invariant=args.invariant,
        drafts=not args.no_drafts,
        threads=args.threads,
        window=args.window,
        cache_bytes=int(args.cache_mb * MB),
        session_ttl_s=args.session_ttl,
        session_ledger=args.session_ledger,
        max_queued_background_tokens=args.max_background_tokens,
        calibration=args.calibration,
    )
    if args.max_running is not None:
        options["max_running"] = args.max_running
    if args.step_tokens is not None:
        options["step_tokens"] = args.step_tokens
    return options


def limits(args: argparse.Namespace, grace_s: float) -> Limits:
    """What add_limits read; `grace_s` where nothing is stated."""
    most = args.max_body_mb
    check(1 / MB <= most <= MOST_MB, f"--max-body-mb must be above 0 and at most {MOST_MB:g}")
    return Limits(
        max_body_bytes=int(args.max_body_mb * MB),
        max_concurrency=args.max_concurrency,
        timeout_s=args.timeout,
        grace_s=grace_s if args.grace is None else args.grace,
    )


def keys(args: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> list[str]:
    """API keys from the command line, a file and the environment."""
    return read_keys(args.api_key, args.api_key_file, environment.get(KEYS_VARIABLE))


def check(holds: bool, otherwise: str) -> None:
    """UsageError unless it holds."""
    if not holds:
        raise UsageError(otherwise)
