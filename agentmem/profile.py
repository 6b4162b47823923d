"""What to run: a profile is a TOML file; every key is known, typed and recorded.

Precedence: defaults < profile file < `--set key=value` < named options of the command line.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from agentmem.errors import UsageError, nearest

TrafficClass = Literal["interactive", "background"]


@dataclass(frozen=True, slots=True)
class TrafficSpec:
    """How urgent the calls of each phase are: background work makes way for interactive work."""

    construction: TrafficClass = "background"
    retrieval: TrafficClass = "interactive"
    generation: TrafficClass = "interactive"


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The model server. `url = "local"` starts our engine; anything else is an OpenAI base URL."""

    url: str = "local"
    model: str = "smollm2-135m"
    """Name from `agentmem models`, a GGUF file or safetensors folder; or the server's model id."""
    mode: Literal["bf16", "fp32", "int8", "fp8", "int4"] = "bf16"
    """Number format of the weights."""
    kv: Literal["auto", "bf16", "int8"] = "auto"
    """Number format of keys and values; auto: as the weights' activations."""
    backend: Literal["auto", "torch", "native"] = "auto"
    """Kernels; auto: native where built."""
    invariant: bool = False
    """The same answer whatever runs beside it; slower."""
    drafts: bool = True
    """Guess the next tokens from the prompt; the answer is the same either way."""
    reuse: bool = True
    """Cached state may serve a call; false computes every prompt anew."""
    calibration: str = ""
    """Folder of scales that `agentmem engine calibrate` wrote, for mode fp8."""
    traffic: TrafficSpec = field(default_factory=TrafficSpec)
    threads: int = 0
    """0: as many as the machine has cores."""
    window_tokens: int = 0
    """0: the model's own."""
    embedder: str = "minilm-l6"
    embed_url: str = ""
    """Empty: the same server as `url`."""
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the variable that holds a foreign server's key."""
    start_timeout_s: float = 180.0


@dataclass(frozen=True, slots=True)
class AnswerSpec:
    """How questions are asked of the reader model."""

    k: int = 10
    k_overflow: int = 5
    """Entries when ten would overflow the window."""
    max_tokens: int = 48
    lane: Literal["native", "harness"] = "native"
    """Who answers for systems that have a loop of their own: that loop, or the reader."""


@dataclass(frozen=True, slots=True)
class ModelCalls:
    """What the gateway does to every call, in one place."""

    sampling: Literal["fixed", "native"] = "fixed"
    temperature: float = 0.0
    constrain: Literal["off", "tools", "all"] = "tools"
    upstream_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class LimitsSpec:
    """Caps given to every system, and time-outs of the worker's verbs."""

    max_output_tokens: int = 256
    max_tool_loops: int = 8
    request_timeout_s: float = 600.0
    timeout_scale: float = 1.0
    """Factor on the time-outs of a system's own system.toml (open, flush, snapshot, close)."""
    unit_timeout_s: float = 1800.0
    query_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class RunSpec:
    """How the loop runs."""

    seed: int = 7
    reference_rows: bool = True
    """Also ask the reader with no memory and with the evidence itself."""
    quiet_s: float = 0.2
    """Quiet interval that closes a construction."""
    quiet_timeout_s: float = 120.0
    frozen_clock: bool = True
    snapshot_every: int = 4
    """Units between two snapshots of a store; a killed run loses at most this many."""
    order: Literal["listed", "shuffled", "counterbalanced"] = "listed"
    """shuffled: anew for each repeat; counterbalanced: A B C, then C B A, and so on."""
    repeats: int = 1
    """Times every system goes over every history; repeats of all systems are interleaved."""
    cache: Literal["cold", "warm"] = "cold"
    """cold: every repeat is a tenant of its own, so no cache of the model server outlives it.
    warm: a system's repeats are one tenant, and one unmeasured pass before them fills its cache."""
    overlap: bool = False
    """Systems that can are asked questions while they construct."""
    warm_up: bool = True


@dataclass(frozen=True, slots=True)
class MeterSpec:
    """Sampling and the energy model (used only where no counter is readable)."""

    hz: float = 10.0
    w_per_core: tuple[float, float, float] = (2.0, 4.0, 8.0)
    """Watts per busy hardware thread: low, mid, high. An assumption, printed as such."""
    contention_limit: float = 0.1
    """Share of the wanted CPU time spent waiting for a core above which work is flagged."""
    idle_s: float = 0.0
    """Time to measure what the idle machine draws, before the first system; 0: not measured."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One run's complete specification."""

    name: str = "unnamed"
    description: str = ""
    systems: tuple[str, ...] = ("long_context", "bm25", "embedrag")
    workload: Mapping[str, Any] = field(default_factory=dict)
    """Keys of `workloads.base.WorkloadSpec`."""
    engine: EngineSpec = field(default_factory=EngineSpec)
    answer: AnswerSpec = field(default_factory=AnswerSpec)
    calls: ModelCalls = field(default_factory=ModelCalls)
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    run: RunSpec = field(default_factory=RunSpec)
    meters: MeterSpec = field(default_factory=MeterSpec)
    options: Mapping[str, Any] = field(default_factory=dict)
    """`[options.<system>]`: passed to that system's adapter unread."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready form, defaults filled in; what the identity hash and manifest hold."""
        return typing.cast("dict[str, Any]", json.loads(json.dumps(dataclasses.asdict(self))))


def profiles_dir() -> Path:
    """Folder of the bundled profiles: `profiles/` of a checkout, or the wheel's copy."""
    here = Path(__file__).resolve().parent
    bundled = here / "_bundled" / "profiles"
    return bundled if bundled.is_dir() else here.parent / "profiles"


def find(name: str) -> Path:
    """Path of a profile given by name or path; UsageError names the nearest known one."""
    path = Path(name)
    if path.suffix == ".toml" or os.sep in name:
        if not os.path.isfile(path):  # noqa: PTH113 (False, not an error, for an overlong name)
            what = "that is a folder" if os.path.isdir(path) else "no such file"  # noqa: PTH112
            raise UsageError(f"no profile at {_short(name)}: {what}")
        return path
    known = sorted(p.stem for p in profiles_dir().glob("*.toml"))
    if name not in known:
        raise UsageError(f"no profile named {name!r}; {nearest(name, known)}")
    return profiles_dir() / f"{name}.toml"


def load(name: str, overrides: Mapping[str, Any] | None = None) -> Profile:
    """Read a profile by name or path and apply dotted `overrides`.

    Raises UsageError for a missing file, broken TOML, an unknown key or a wrong type.
    """
    path = find(name)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as err:
        raise UsageError(f"{path}: not valid TOML: {err}") from None
    except OSError as err:
        raise UsageError(f"{path}: cannot be read: {err.strerror}") from None
    data.setdefault("name", path.stem)
    for key, value in (overrides or {}).items():
        _put(data, key.split("."), value, key)
    return parse(data, str(path))


def parse(data: Mapping[str, Any], where: str = "profile") -> Profile:
    """Profile from plain data, every key checked."""
    profile: Profile = _build(Profile, data, where, "")
    if not profile.systems:
        raise UsageError(f"{where}: `systems` is empty")
    if len(set(profile.systems)) != len(profile.systems):
        raise UsageError(f"{where}: `systems` names one system twice")
    _check_name(profile.name, where)
    _check_bounds(profile, where)
    _check_engine(profile.engine, where)
    return profile


_YEAR_S = 366 * 86400.0
_TIMEOUT = (1e-3, _YEAR_S)
_INT64 = 2**63 - 1
_BOUNDS: dict[str, tuple[float, float]] = {
    "engine.threads": (0, 1024),
    "engine.window_tokens": (0, _INT64),
    "engine.start_timeout_s": _TIMEOUT,
    "answer.k": (1, 10_000),
    "answer.k_overflow": (1, 10_000),
    "answer.max_tokens": (1, 1_000_000),
    "calls.temperature": (0.0, 2.0),
    "calls.upstream_timeout_s": _TIMEOUT,
    "limits.max_output_tokens": (1, 1_000_000),
    "limits.max_tool_loops": (0, 10_000),
    "limits.request_timeout_s": _TIMEOUT,
    "limits.timeout_scale": (1e-3, 1e4),
    "limits.unit_timeout_s": _TIMEOUT,
    "limits.query_timeout_s": _TIMEOUT,
    "run.seed": (0, _INT64),
    "run.quiet_s": (0.0, 3600.0),
    "run.quiet_timeout_s": _TIMEOUT,
    "run.snapshot_every": (1, _INT64),
    "run.repeats": (1, 10_000),
    "meters.hz": (0.01, 1000.0),
    "meters.contention_limit": (0.0, 1.0),
    "meters.idle_s": (0.0, 86400.0),
}
"""Least and greatest sensible value of every number; both are allowed."""


def _check_bounds(profile: Profile, where: str) -> None:
    """UsageError for a number outside its bounds, or one that is not finite."""
    for key, (low, high) in _BOUNDS.items():
        table, _, name = key.partition(".")
        value = getattr(getattr(profile, table), name)
        if not low <= value <= high:  # nan is not between
            most = "" if high == _INT64 else f" and at most {high:,.15g}"
            raise UsageError(f"{where}: {key} must be at least {low:g}{most}; got {_short(value)}")
        if high == _INT64 and value > _INT64:  # the comparison above is in floating point
            raise UsageError(f"{where}: {key} must be below 2**63; got {_short(value)}")
    watts = profile.meters.w_per_core
    if not all(map(math.isfinite, watts)) or not 0 <= watts[0] <= watts[1] <= watts[2]:
        raise UsageError(
            f"{where}: meters.w_per_core takes watts as [low, mid, high], rising; got {list(watts)}"
        )
    window = profile.engine.window_tokens
    if 0 < window < profile.answer.max_tokens + _LEAST_PROMPT_TOKENS:
        raise UsageError(
            f"{where}: engine.window_tokens = {window} leaves no room for a question beside "
            f"answer.max_tokens = {profile.answer.max_tokens}; use 0 for the model's own window"
        )


def _check_engine(engine: EngineSpec, where: str) -> None:
    """URLs that can be asked, and models that have a name."""
    for key, word in (("url", "local"), ("embed_url", "")):
        url = getattr(engine, key)
        if url != word and not url.startswith(("http://", "https://")):
            other = "local" if word else "empty"
            raise UsageError(
                f"{where}: engine.{key} must be {other} or begin with http:// or https://; "
                f"got {_short(url)!r}"
            )
    if engine.calibration and engine.mode != "fp8":
        raise UsageError(
            f'{where}: engine.calibration serves engine.mode = "fp8"; it is {engine.mode!r} here'
        )
    for key in ("model", "embedder"):
        if not getattr(engine, key).strip():
            raise UsageError(f"{where}: engine.{key} is empty; `agentmem models` lists some")


_LEAST_PROMPT_TOKENS = 128
"""Instructions, chat template and one question."""


def _check_name(name: str, where: str) -> None:
    """A name becomes part of a folder's name."""
    if not name.strip() or len(name.encode("utf-8", "replace")) > 100:
        raise UsageError(f"{where}: name must have 1 to 100 characters; got {_short(name)!r}")
    if "/" in name or not name.isprintable():
        raise UsageError(f"{where}: name must not hold '/' or control characters; got {name!r}")


def _short(value: Any) -> str:
    """A value for a message, cut when it is long."""
    try:
        text = str(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number too long to print"
    return text if len(text) <= 80 else text[:77] + "..."


def parse_setting(text: str) -> tuple[str, Any]:
    """`key=value` of `--set`; the value is read as TOML, else taken as a string."""
    key, eq, raw = text.partition("=")
    if not eq or not key.strip():
        raise UsageError(f"--set takes key=value, for example answer.k=5; got {text!r}")
    try:
        value = tomllib.loads(f"v = {raw}")["v"]
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        value = raw.strip()
    return key.strip(), value


def _put(data: dict[str, Any], path: list[str], value: Any, whole: str) -> None:
    node = data
    for part in path[:-1]:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise UsageError(f"--set {whole}: {part!r} is not a table")
    node[path[-1]] = value


def _build(cls: Any, data: Any, where: str, prefix: str) -> Any:
    if not isinstance(data, Mapping):
        raise UsageError(f"{where}: {prefix.rstrip('.') or 'profile'} must be a table")
    hints = typing.get_type_hints(cls)
    unknown = [k for k in data if k not in hints]
    if unknown:
        key = unknown[0]
        raise UsageError(f"{where}: unknown key {prefix + key!r}; {nearest(key, list(hints))}")
    values = {k: _value(hints[k], v, where, prefix + k) for k, v in data.items()}
    return cls(**values)


def _value(hint: Any, value: Any, where: str, key: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, where, key + ".")
    origin = typing.get_origin(hint)
    if origin is Literal:
        if value not in typing.get_args(hint):
            allowed = ", ".join(map(str, typing.get_args(hint)))
            raise UsageError(f"{where}: {key} must be one of {allowed}; got {value!r}")
        return value
    if origin is tuple:
        return _tuple(hint, value, where, key)
    if hint is bool and not isinstance(value, bool):
        raise UsageError(f"{where}: {key} must be true or false; got {_short(value)!r}")
    wanted = Mapping if origin not in (None, types.UnionType) else hint
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(max(min(value, 2**64), -(2**64)))  # far outside every bound
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        name = "table" if wanted is Mapping else wanted.__name__
        raise UsageError(f"{where}: {key} must be a {name}; got {_short(value)!r}")
    return value


def _tuple(hint: Any, value: Any, where: str, key: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise UsageError(f"{where}: {key} must be a list; got {value!r}")
    args = typing.get_args(hint)
    if args[-1] is not Ellipsis and len(value) != len(args):
        raise UsageError(f"{where}: {key} takes {len(args)} values; got {len(value)}")
    return tuple(_value(args[0], item, where, key) for item in value)
