"""Virtual environments of memory systems, one per set of pins, built once and checked on use."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from agentmem.errors import MemorySystemError
from agentmem.modelfiles.fetch import cache_dir
from agentmem.sandbox.failure import tail
from agentmem.sandbox.requirements import Lock, normalise, read_lock
from agentmem.sandbox.specmodel import SystemSpec

Progress = Callable[[str], None]
State = Literal["host", "ready", "missing", "broken"]
_STAMP = "complete.json"
_PIP = ("--no-input", "--disable-pip-version-check", "--no-color", "--progress-bar", "off")
_LIST = (
    "import json, importlib.metadata as m;"
    "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
)


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python that can run a system's adapter."""

    python: Path
    lock_hash: str
    """sha256 of the pins; for a host system, of the versions of what it imports."""
    path: Path | None
    """Folder of the virtual environment; None for the host's own."""


@dataclass(frozen=True, slots=True)
class Status:
    state: State
    detail: str
    path: Path | None


def ensure(spec: SystemSpec, on_progress: Progress | None = None) -> Environment:
    """The environment, built or rebuilt if need be; MemorySystemError when pip fails."""
    if spec.environment == "host":
        return Environment(Path(sys.executable), _host_hash(spec), None)
    lock, path = _plan(spec)
    tell = on_progress or (lambda _: None)
    if not os.access(path.parent, os.W_OK) and path.exists() and _fault(path, lock) is None:
        return Environment(_python(path), lock.hash, path)  # in a cache that others keep
    with _locked(path, tell) as held:
        if _fault(path, lock) is not None:
            _build(lock, path, _Steps(spec, Path(f"{path}.log"), held, tell))
            fault = _fault(path, lock)
            if fault is not None:
                raise MemorySystemError(f"environment of {spec.name} is not usable: {fault}")
    return Environment(_python(path), lock.hash, path)


def status(spec: SystemSpec) -> Status:
    """Whether the environment stands, without building anything."""
    if spec.environment == "host":
        return Status("host", f"agentmem's own Python, {sys.executable}", None)
    lock, path = _plan(spec)
    if not path.exists():
        return Status("missing", f"run: agentmem systems install {spec.name}", path)
    fault = _fault(path, lock)
    return Status("ready", str(path), path) if fault is None else Status("broken", fault, path)


def remove(spec: SystemSpec) -> bool:
    """Delete the environment; False when there was none."""
    if spec.environment == "host":
        return False
    _, path = _plan(spec)
    with _locked(path, lambda _: None):
        existed = path.exists()
        shutil.rmtree(path, ignore_errors=True)
    return existed


def _plan(spec: SystemSpec) -> tuple[Lock, Path]:
    lock = read_lock(spec.requirements)
    return lock, cache_dir() / "envs" / f"{spec.name}-{lock.hash[:12]}"


def _python(path: Path) -> Path:
    return path / "bin" / "python"


def _host_hash(spec: SystemSpec) -> str:
    """Over the versions of the host packages behind the declared imports."""
    imports = spec.upstream.imports if spec.upstream else ()
    owners = importlib.metadata.packages_distributions()
    names = sorted({name for module in imports for name in owners.get(module, [])})
    versions = [f"{name}=={importlib.metadata.version(name)}" for name in names]
    python = sys.implementation.cache_tag or ""
    return hashlib.sha256("\n".join([python, *versions]).encode()).hexdigest()


def _fault(path: Path, lock: Lock) -> str | None:
    """What is wrong with a built environment; None when it can be used."""
    if not (path / _STAMP).is_file():
        return "it was not built to the end"
    try:
        found = _installed(path)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return f"its Python does not start: {error}"
    stamp = json.loads((path / _STAMP).read_text())
    for name, version in stamp["installed"].items():
        if found.get(name) != version:
            return f"package {name} {version} is missing (found: {found.get(name)})"
    missing = lock.versions.keys() - found.keys() - set(stamp["skipped"])
    return f"package {min(missing)} is missing" if missing else None


def _installed(path: Path) -> dict[str, str]:
    """Normalised names and versions of an environment's packages, as its own Python sees them."""
    command = [str(_python(path)), "-I", "-c", _LIST]
    done = subprocess.run(command, capture_output=True, timeout=300, text=True, check=True)
    return {normalise(name): version for name, version in json.loads(done.stdout).items()}


@contextmanager
def _locked(path: Path, tell: Progress) -> Iterator[int]:
    """One builder at a time; gives the descriptor of the lock file, which stays beside it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise MemorySystemError(
            f"cannot write to {path.parent}: {error.strerror}; "
            "set AGENTMEM_CACHE to a folder of yours"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("waiting for another build of the same environment")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _build(lock: Lock, path: Path, steps: _Steps) -> None:
    """In place, since a virtual environment cannot be moved; the stamp is written last."""
    shutil.rmtree(path, ignore_errors=True)
    steps.tell("creating the environment")
    if _host_pip():
        steps.run([sys.executable, "-m", "venv", "--without-pip", str(path)])
        pip = [sys.executable, "-I", "-m", "pip", "--python", str(_python(path))]
    else:
        steps.run([sys.executable, "-m", "venv", str(path)])
        pip = [str(_python(path)), "-I", "-m", "pip"]
    pip += ["install", *_PIP]
    if lock.torch is not None:
        steps.run([*pip, lock.torch])
    if lock.hashed:
        pins = path / "requirements.lock"
        pins.write_text("\n".join(lock.hashed) + "\n", encoding="utf-8")
        steps.run([*pip, "--no-deps", "--require-hashes", "-r", str(pins)])
    found = _installed(path)
    stamp = {
        "lock": lock.hash,
        "installed": found,
        "skipped": sorted(lock.versions.keys() - found.keys()),
    }
    partial = path / f"{_STAMP}.partial"
    partial.write_text(json.dumps(stamp, indent=1))
    partial.replace(path / _STAMP)


def _host_pip() -> bool:
    """Whether our own pip can install into another environment, which spares it one of its own."""
    try:
        version = importlib.metadata.version("pip").split(".")
    except importlib.metadata.PackageNotFoundError:
        return False
    return (int(version[0]), int(version[1])) >= (22, 3)


class _Steps:
    """Runs build commands, their output in one log, the package at hand told."""

    def __init__(self, spec: SystemSpec, log: Path, held: int, tell: Progress) -> None:
        self._spec, self._log, self._held, self.tell = spec, log, held, tell
        log.write_bytes(b"")

    def run(self, command: list[str]) -> None:
        """Raises MemorySystemError with the log's tail when the command fails."""
        with self._log.open("a") as file:
            file.write(f"$ {' '.join(command)}\n")
            file.flush()
            # the step holds the lock too: should we be killed, nobody builds beside it
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(self._held,),
                text=True,
                errors="replace",
            )
            try:
                self._follow(process, file)
            except BaseException:
                process.kill()
                raise
            finally:
                code = process.wait()
        if code != 0:
            raise MemorySystemError(
                f"environment of {self._spec.name} could not be built (exit code {code}); "
                f"{_reason(tail(self._log, 4000) or '')}; log: {self._log}"
            )

    def _follow(self, process: subprocess.Popen[str], file: TextIO) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            file.flush()
            words = line.split()
            if len(words) > 1 and words[0] in ("Collecting", "Downloading"):
                self.tell(f"{words[0].lower()} {words[1]}")
            elif words[:2] == ["Installing", "collected"]:
                self.tell("installing packages")


def _reason(output: str) -> str:
    """What a failed step complained of: its last error line, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any(
        "Temporary failure in name resolution" in line
        or "NewConnection" in line
        or "Connection refused" in line
        for line in lines
    ):
        return "no package index can be reached"
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["it said nothing"])[-1][:300]
