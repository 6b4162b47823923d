"""Recording a run's replies to a file, and running from such a file instead of a model server."""

from __future__ import annotations

import dataclasses
import datetime
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import agentmem
from agentmem.errors import DataError, UsageError
from agentmem.gateway.forcing import Forcing
from agentmem.gateway.options import GatewayOptions
from agentmem.gateway.record import Recording, holds_calls
from agentmem.gateway.replay import Replay
from agentmem.modelfiles.fetch import resolve
from agentmem.modelfiles.tokenizer import Tokenizer, load_tokenizer, reference_tokenizer
from agentmem.profile import Profile
from agentmem.runner import through
from agentmem.runner.engine import ServerFacts
from agentmem.runner.options import ReplayMode, RunOptions

REPLAY = "replay"
"""`engine.kind` of a run whose replies come from a recording."""


def open_replay(options: RunOptions, stack: ExitStack) -> Replay | None:
    """The recording to run from, read and checked; None where a model is to answer.

    UsageError for options that do not go together.
    """
    if options.replay_mode not in get_args(ReplayMode):
        raise UsageError(f"--replay-mode is one of {', '.join(get_args(ReplayMode))}")
    if options.record is not None and not options.record.absolute().parent.is_dir():
        raise UsageError(f"no folder {options.record.parent} to write the recording in")
    if options.replay is None:
        if options.replay_mode != "at-once":
            raise UsageError("--replay-mode goes with --replay FILE")
        return None
    if options.record is not None:
        raise UsageError("--record and --replay exclude each other: a replay has nothing new")
    replay = Replay(options.replay)
    stack.callback(replay.close)
    return replay


def served(replay: Replay) -> ServerFacts:
    """What the recorded server said about itself; DataError where the header lacks it."""
    told = replay.header.get("served")
    fields = [f for f in dataclasses.fields(ServerFacts) if f.name not in ("url", "kind", "ours")]
    needed = {f.name for f in fields if f.default is dataclasses.MISSING}
    if not isinstance(told, Mapping) or not needed <= set(told):
        raise DataError(f"{replay.path}: its header does not say which model was recorded")
    known = {f.name: told[f.name] for f in fields if f.name in told}
    known["notes"] = tuple(known.get("notes") or ())
    return ServerFacts(url="", kind=REPLAY, **known)


def models(profile: Profile, options: RunOptions, replay: Replay | None) -> tuple[str, ...]:
    """Models whose files a run needs: of a recorded local model only the tokenizer's."""
    spec = profile.engine
    served = (spec.model, spec.embedder) if spec.url == "local" else ()
    if replay is None:
        return served
    if is_through(options):
        recorded = str(dict(replay.header.get("served") or {}).get("model"))
        return (*served, *(through.known_model(recorded) if _was_local(replay) else ()))
    return (spec.model,) if _was_local(replay) else ()


def is_through(options: RunOptions) -> bool:
    """An engine is made to produce the recorded replies."""
    return options.replay is not None and options.replay_mode == "through-engine"


def counter(profile: Profile, facts: ServerFacts, replay: Replay | None) -> Tokenizer:
    """The model's own tokenizer where its files are here, else the built-in one.

    Prompts are cut by it, so a replay needs the one that the recording was made with. `facts` are
    those that systems are told.
    """
    if replay is not None:
        wanted = str(replay.header.get("tokenizer"))
        return through.tokenizer_of(wanted, profile.engine.model, facts.model)
    if facts.kind == "local":
        return load_tokenizer(resolve(profile.engine.model))
    return reference_tokenizer("words-v1")


def _was_local(replay: Replay) -> bool:
    return dict(replay.header.get("served") or {}).get("kind") == "local"


def manifest_part(
    options: RunOptions, replay: Replay | None, served: ServerFacts
) -> dict[str, Any]:
    """What a new run's manifest says about its recording; `notes` are to be added to its own."""
    if options.record is not None:
        return {"recording": {"file": options.record.name, "id": uuid.uuid4().hex}}
    if replay is None:
        return {}
    header = replay.header
    made = f"{header.get('created')} with {dict(header['served'])['model']}"
    note = (
        f"Replayed: every reply comes from the recording {replay.path.name}, made {made}. No model "
        "ran here. Token counts are the recorded ones; seconds, CPU and energy are those of a "
        "replay and measure no model."
    )
    if is_through(options):
        note = (
            f"Replayed through an engine: every answer comes from the recording "
            f"{replay.path.name}, made {made}; {served.model} ({served.mode}) was made to produce "
            "it. Tokens, seconds, CPU and energy are this engine's; answers say nothing about it."
        )
    told = {"file": replay.path.name, "sha256": replay.sha256, "calls": replay.calls}
    told |= {"mode": options.replay_mode}
    told |= {name: header.get(name) for name in ("id", "created", "run", "served")}
    return {"replay": told, "notes": [note]}


def check_recording(options: RunOptions, manifest: Mapping[str, Any] | None, journal: Path) -> None:
    """UsageError where a recording would have a hole, or would be written over."""
    path, begun = options.record, dict(manifest or {}).get("recording")
    complete = manifest is not None and manifest["status"] == "complete"
    if path is None:
        if begun and not complete:
            raise UsageError(
                f"this run is being recorded; go on with --record and its file, {begun['file']}"
            )
    elif manifest is None:
        if holds_calls(path):
            raise UsageError(f"{path} holds something already; choose another file to record to")
    elif not begun:
        state = "complete" if complete else "begun"
        raise UsageError(f"this run is {state} without --record; choose another --out to record it")
    elif not path.exists() and journal.exists() and journal.stat().st_size:
        raise UsageError(f"{path} is gone, and with it the replies recorded so far")


def attach(
    options: GatewayOptions,
    path: Path | None,
    replay: Replay | None,
    forcing: Forcing | None,
    manifest: Mapping[str, Any],
    facts: ServerFacts,
    stack: ExitStack,
) -> GatewayOptions:
    """The gateway's options with the run's recording or replay in them."""
    if path is None:
        return dataclasses.replace(options, replay=replay, forcing=forcing)
    header = {
        "id": manifest["recording"]["id"],
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "agentmem": agentmem.__version__,
        "run": manifest["run_id"],
        "served": {k: v for k, v in facts.as_dict().items() if k != "url"},
        "tokenizer": options.tokenizer_name,
        "note": "holds the text of every model reply",
    }
    recording = Recording(path, header)
    stack.callback(recording.close)
    return dataclasses.replace(options, record=recording)
