"""The model server a run talks to: our local engine as a child process, or any other by URL."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentmem.errors import EngineError, UsageError
from agentmem.modelfiles.fetch import resolve
from agentmem.profile import EngineSpec
from agentmem.runner.identity import tree_digest


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says about itself; None is unknown."""

    url: str
    """Base URL ending in /v1."""
    kind: str
    """local, foreign, or replay: no server, the facts are a recording's."""
    model: str
    embed_model: str
    embed_dims: int
    window_tokens: int
    mode: str | None
    backend: str | None
    weights: str | None
    threads: int | None
    kv: str | None = None
    """Number format of keys and values."""
    calibration: str | None = None
    """sha256 of the scales that a local engine was given."""
    ours: bool = False
    """An engine of agentmem's: it takes a call's `drafts`, `reuse` and forced tokens."""
    notes: tuple[str, ...] = ()
    """What the engine was asked for and fell back from, in its own words."""

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class LocalEngine:
    """`python -m agentmem.engine` as a child that dies with this process."""

    def __init__(self, spec: EngineSpec, log: Path, *more: str) -> None:
        """Start it; `more` are further options of its command line."""
        self._log, self._spec, self._more = log, spec, more
        self.url = ""
        self._start(0)

    def restart(self) -> None:
        """Start a dead engine again on the same port."""
        self._start(urllib.parse.urlsplit(self.url).port or 0)

    def _start(self, port: int) -> None:
        spec = self._spec
        args = [sys.executable, "-m", "agentmem.engine", "--port", str(port)]
        args += ["--parent-pid", str(os.getpid()), *options(spec), *self._more]
        with self._log.open("ab") as sink:
            self.process = subprocess.Popen(
                args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sink, env=_env()
            )
        try:
            self.url = self._ready()["url"]
        except BaseException:
            self.stop()
            raise

    def _ready(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        deadline = time.monotonic() + self._spec.start_timeout_s
        while time.monotonic() < deadline:
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                line = self.process.stdout.readline()
                if line:
                    return _parse_ready(line)
            if self.process.poll() is not None:
                raise EngineError(f"the local engine did not start: {self.last_line()}")
        raise EngineError(
            f"the local engine was not ready after {self._spec.start_timeout_s:.0f} s"
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def alive(self) -> bool:
        return self.process.poll() is None

    def last_line(self) -> str:
        """Last line of the engine's log, for an error message."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.process.poll()}"

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def options(spec: EngineSpec) -> list[str]:
    """The engine's command line for what the profile asks; UsageError for a lacking folder."""
    args = ["--mode", spec.mode, "--kv", spec.kv, "--backend", spec.backend]
    args += ["--model", str(resolve(spec.model)), "--embedder", str(resolve(spec.embedder))]
    args += ["--threads", str(spec.threads)] if spec.threads else []
    args += ["--window", str(spec.window_tokens)] if spec.window_tokens else []
    args += ["--invariant"] if spec.invariant else []
    args += [] if spec.drafts else ["--no-drafts"]
    if spec.calibration:
        if not Path(spec.calibration).is_dir():
            raise UsageError(
                f"engine.calibration: no folder {spec.calibration}; "
                "`agentmem engine calibrate MODEL --out DIR` makes one"
            )
        args += ["--calibration", spec.calibration]
    return args


SETTINGS = ("mode", "kv", "backend", "invariant", "drafts", "reuse", "calibration", "threads")
"""Keys of `[engine]` that say how our engine computes."""
OF_A_CALL = ("drafts", "reuse")
"""Those of them that go with every call, so that any engine of ours takes them."""


def without_effect(spec: EngineSpec, served: ServerFacts) -> str | None:
    """A notice of the settings that a server which this run did not start leaves undone."""
    if served.kind != "foreign":
        return None
    taken = OF_A_CALL if served.ours else ()
    plain = EngineSpec()
    unmet = [k for k in SETTINGS if k not in taken and getattr(spec, k) != getattr(plain, k)]
    if not unmet and (served.ours or spec.traffic == plain.traffic):
        return None
    names = [f"engine.{k}" for k in unmet]
    names += [] if served.ours or spec.traffic == plain.traffic else ["engine.traffic"]
    one = len(names) == 1
    return (
        f"{', '.join(names)} {'has' if one else 'have'} no effect: the server at {served.url} was "
        "not started by this run and decides for itself"
    )


def _env() -> dict[str, str]:
    # The package may run from a checkout that is not installed.
    root = str(Path(__file__).resolve().parent.parent.parent)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{path}" if path else root}


def _parse_ready(line: bytes) -> dict[str, Any]:
    try:
        ready: dict[str, Any] = json.loads(line)
        ready["url"]
    except (ValueError, KeyError, TypeError):
        raise EngineError(f"the local engine said {line[:200]!r} instead of being ready") from None
    return ready


def facts(url: str, embed_url: str, spec: EngineSpec, kind: str) -> ServerFacts:
    """Ask the server(s) what they serve; EngineError says which URL is dead or lacks a model."""
    chat = _models(url, spec)
    embed = chat if embed_url == url else _models(embed_url, spec)
    served = _pick(chat, "chat", None if kind == "local" else spec.model, url)
    embedder = _pick(embed, "embedding", None if kind == "local" else spec.embedder, embed_url)
    ours = served.get("agentmem") or {}
    local = kind == "local"
    window = spec.window_tokens or served.get("max_model_len")
    if not window:
        raise EngineError(f"{url} does not say its context window; set engine.window_tokens")
    return ServerFacts(
        url,
        kind,
        served["id"],
        embedder["id"],
        _dims(embed_url, embedder["id"], spec),
        int(window),
        ours.get("mode"),
        ours.get("backend"),
        ours.get("weights"),
        ours.get("threads"),
        ours.get("kv"),
        _scales(spec) if local else None,
        served.get("owned_by") == "agentmem",
        tuple(str(note) for note in ours.get("notes") or ()),
    )


def _scales(spec: EngineSpec) -> str | None:
    """sha256 over the calibration's files; None without one."""
    if not spec.calibration:
        return None
    return tree_digest([Path(spec.calibration)], suffixes=None)


def _models(url: str, spec: EngineSpec) -> list[dict[str, Any]]:
    reply = fetch_json(f"{url}/models", None, spec.api_key_env, 30.0)
    models = reply.get("data")
    if not isinstance(models, list) or not models:
        raise EngineError(f"{url}/models lists no model; is it an OpenAI-compatible /v1 address?")
    return [m for m in models if isinstance(m, dict) and "id" in m]


def _pick(models: list[dict[str, Any]], kind: str, wanted: str | None, url: str) -> dict[str, Any]:
    if wanted is None:
        typed = [m for m in models if m.get("kind", m.get("agentmem", {}).get("kind")) == kind]
        return typed[0] if typed else models[0]
    for model in models:
        if model["id"] == wanted:
            return model
    served = ", ".join(m["id"] for m in models)
    key = "engine.model" if kind == "chat" else "engine.embedder"
    raise EngineError(f"{url} does not serve {wanted!r} (it has {served}); set {key}")


def _dims(url: str, model: str, spec: EngineSpec) -> int:
    body = {"model": model, "input": ["width"]}
    reply = fetch_json(f"{url}/embeddings", body, spec.api_key_env, 120.0)
    return len(reply["data"][0]["embedding"])


def wait_until_served(served: ServerFacts, spec: EngineSpec) -> None:
    """Return once a foreign server answers; EngineError when it does not within the time-out."""
    if served.kind == "replay":
        return
    deadline = time.monotonic() + spec.start_timeout_s
    while True:
        try:
            fetch_json(f"{served.url}/models", None, spec.api_key_env, 10.0)
        except EngineError as err:
            if time.monotonic() >= deadline:
                raise EngineError(f"{err}; run the same command again to go on") from None
            time.sleep(1.0)
        else:
            return


def warm_up(served: ServerFacts, spec: EngineSpec) -> None:
    """One short chat straight to the server, before the clock and past the meter."""
    body = {
        "model": served.model,
        "messages": [{"role": "user", "content": "Hello."}],
        "max_tokens": 4,
    }
    fetch_json(f"{served.url}/chat/completions", body, spec.api_key_env, spec.start_timeout_s)


def fetch_json(url: str, body: Any, key_env: str, timeout_s: float) -> dict[str, Any]:
    """One JSON request straight to a model server; EngineError in one line when it fails."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(key_env):
        headers["Authorization"] = f"Bearer {key}"
    try:
        request = urllib.request.Request(url, data, headers)
        with urllib.request.urlopen(request, timeout=timeout_s) as reply:
            parsed = json.load(reply)
    except urllib.error.HTTPError as err:
        raise EngineError(
            f"{url} answered {err.code}: {err.read(200).decode(errors='replace')}"
        ) from None
    except (OSError, ValueError) as err:
        reason = getattr(err, "reason", err)
        raise EngineError(f"cannot reach a model server at {url}: {reason}") from None
    if not isinstance(parsed, dict):
        raise EngineError(f"{url} did not answer with a JSON object")
    return parsed
