"""`system.toml` read strictly: an unknown key is an error that names the nearest known one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentmem.errors import MemorySystemError, nearest
from agentmem.records import PHASES, STAGES, Fingerprint
from agentmem.sandbox.specmodel import TAXONOMY, SystemSpec, Timeouts, UpstreamPackage

SPEC_FILE = "system.toml"

_KEYS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "title": str,
    "paradigm": str,
    "environment": str,
    "adapter": str,
    "requirements": str,
    "endpoints": list,
    "native_answer": bool,
    "passthrough": bool,
    "overlap": bool,
    "stores_records": bool,
    "fidelity": str,
    "taxonomy": dict,
    "upstream": dict,
    "env": dict,
    "timeouts": dict,
    "stores": dict,
    "fingerprints": list,
}
_FINGERPRINT_KEYS = ("kind", "stage", "contains", "endpoint", "phase", "schema")
_FINGERPRINT_ENDPOINTS = ("chat", "completion", "responses", "embedding", "other")


def load_spec(folder: Path | str) -> SystemSpec:
    """Read `folder`/system.toml; raises MemorySystemError naming the file and the key at fault."""
    file = Path(folder).resolve() / SPEC_FILE
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MemorySystemError(f"{file} is missing: a memory system's folder needs one") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MemorySystemError(f"{file} cannot be read: {error}") from None
    try:
        return _build(file.parent, raw)
    except ValueError as error:
        raise MemorySystemError(f"{file}: {error}") from None


def _build(folder: Path, raw: dict[str, Any]) -> SystemSpec:
    _check_types(raw, _KEYS, "")
    for key in ("name", "title", "paradigm", "environment", "taxonomy"):
        if key not in raw:
            raise ValueError(f"key {key!r} is missing")
    environment = _one_of(raw, "environment", ("host", "own"))
    adapter = _file(folder, raw.get("adapter", "adapter.py"))
    listed = raw.get("requirements", "requirements.txt")
    requirements = folder / listed
    if environment == "own" or "requirements" in raw:
        requirements = _file(folder, listed)
    return SystemSpec(
        name=_name(raw["name"]),
        title=raw["title"],
        paradigm=raw["paradigm"],
        environment=environment,  # type: ignore[arg-type]
        folder=folder,
        adapter=adapter,
        requirements=requirements if requirements.is_file() else None,
        taxonomy=_taxonomy(raw["taxonomy"]),
        upstream=_upstream(raw.get("upstream")),
        endpoints=_endpoints(raw.get("endpoints", [])),
        native_answer=raw.get("native_answer", False),
        passthrough=raw.get("passthrough", False),
        overlap=raw.get("overlap", False),
        stores_records=raw.get("stores_records", True),
        fidelity=_one_of(raw, "fidelity", ("shipped", "fixed"), "shipped"),  # type: ignore[arg-type]
        env=_strings(raw.get("env", {}), "env"),
        timeouts=_timeouts(raw.get("timeouts", {})),
        stores=_strings(raw.get("stores", {}), "stores"),
        fingerprints=tuple(
            _fingerprint(f, i, folder) for i, f in enumerate(raw.get("fingerprints", []))
        ),
    )


def _check_types(raw: Mapping[str, Any], keys: Mapping[str, Any], where: str) -> None:
    for key, value in raw.items():
        if key not in keys:
            raise ValueError(f"unknown key {where + key!r}, {nearest(key, list(keys))}")
        if not isinstance(value, keys[key]) or (isinstance(value, bool) and keys[key] is not bool):
            raise ValueError(f"key {where + key!r} has the wrong type: {value!r}")


def _name(name: str) -> str:
    if not name or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in name):
        raise ValueError(f"name {name!r} may hold letters, digits, '-', '_' and '.' only")
    if name in (".", "..", "no_memory", "oracle_evidence"):
        raise ValueError(f"name {name!r} is reserved")
    return name


def _one_of(raw: Mapping[str, Any], key: str, known: tuple[str, ...], default: str = "") -> str:
    value = raw.get(key, default)
    if value not in known:
        raise ValueError(f"{key} = {value!r} is unknown, {nearest(str(value), list(known))}")
    return str(value)


def _file(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_file():
        raise ValueError(f"file {path} is missing")
    return path


def _strings(raw: Mapping[str, Any], where: str) -> dict[str, str]:
    for key, value in raw.items():
        if not isinstance(value, str):
            raise ValueError(f"key '{where}.{key}' must be a string, not {value!r}")
    return dict(raw)


def _taxonomy(raw: Mapping[str, Any]) -> dict[str, str]:
    _check_types(raw, dict.fromkeys(TAXONOMY, str), "taxonomy.")
    missing = [key for key in TAXONOMY if key not in raw]
    if missing:
        raise ValueError(f"key 'taxonomy.{missing[0]}' is missing")
    return {key: raw[key] for key in TAXONOMY}


def _upstream(raw: Mapping[str, Any] | None) -> UpstreamPackage | None:
    if raw is None:
        return None
    known = {"package": str, "version": str, "licence": str, "imports": list}
    _check_types(raw, known, "upstream.")
    if "package" not in raw:
        raise ValueError("key 'upstream.package' is missing")
    return UpstreamPackage(
        raw["package"], raw.get("version"), raw.get("licence"), tuple(raw.get("imports", ()))
    )


def _endpoints(raw: list[Any]) -> tuple[str, ...]:
    for item in raw:
        if item not in ("chat", "embed"):
            raise ValueError(f"endpoints holds {item!r}, {nearest(str(item), ['chat', 'embed'])}")
    return tuple(raw)


def _timeouts(raw: Mapping[str, Any]) -> Timeouts:
    known = dict.fromkeys(Timeouts.__dataclass_fields__, (int, float))
    _check_types(raw, known, "timeouts.")
    return Timeouts(**{key: float(value) for key, value in raw.items()})


def _fingerprint(raw: Any, index: int, folder: Path) -> Fingerprint:
    where = f"fingerprints[{index}]."
    if not isinstance(raw, dict):
        raise ValueError(f"{where} must be a table")
    for key in raw:
        if key not in _FINGERPRINT_KEYS:
            hint = nearest(key, list(_FINGERPRINT_KEYS))
            raise ValueError(f"unknown key {where + key!r}, {hint}")
    for key in ("kind", "stage"):
        if key not in raw:
            raise ValueError(f"key {where + key!r} is missing")
    contains = raw.get("contains", [])
    if not isinstance(contains, list) or not all(isinstance(c, str) and c for c in contains):
        raise ValueError(f"key {where}contains must be a list of non-empty strings")
    checked: dict[str, Any] = {"kind": raw["kind"], "contains": tuple(contains)}
    checked["stage"] = _one_of(raw, "stage", STAGES)
    if "endpoint" in raw:
        checked["endpoint"] = _one_of(raw, "endpoint", _FINGERPRINT_ENDPOINTS)
    if "phase" in raw:
        checked["phase"] = _one_of(raw, "phase", PHASES)
    if "schema" in raw:
        checked["schema"] = _schema(_file(folder, str(raw["schema"])))
    return Fingerprint(**checked)


def _schema(path: Path) -> str:
    """A JSON schema file, as compact text."""
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ValueError(f"{path} holds no JSON object")
    return json.dumps(schema, separators=(",", ":"))
