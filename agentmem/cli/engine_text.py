"""What the engine's tools share: the model, the text, threads, a bar of progress."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from agentmem.errors import DataError, UsageError


class SampleText(NamedTuple):
    """A text and where it is from."""

    text: str
    source: str

    @property
    def sha256(self) -> str:
        """Of the text's UTF-8."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def add_model(cmd: Any, optional: bool = False) -> None:
    """The arguments that say which model, and with how many threads."""
    extra = {"nargs": "?"} if optional else {}
    cmd.add_argument(
        "model", metavar="MODEL", help="name, GGUF file or safetensors folder", **extra
    )
    cmd.add_argument("--threads", type=int, help="default: all cores this process may use")


def open_model(args: argparse.Namespace) -> Path:
    """Path of the model, fetched where it is a known name; sets the threads."""
    import torch

    from agentmem.cli.say import sayer
    from agentmem.engine.cputime import usable_cores
    from agentmem.engine.options import MOST_THREADS
    from agentmem.modelfiles.fetch import fetch, resolve
    from agentmem.modelfiles.registry import MODELS

    if args.threads is not None and not 1 <= args.threads <= MOST_THREADS:
        raise UsageError(f"--threads must be 1 to {MOST_THREADS}, not {args.threads}")
    torch.set_num_threads(args.threads or usable_cores())
    if args.model in MODELS:
        if MODELS[args.model].kind != "chat":
            raise UsageError(f"{args.model} is an embedder; the modes are of language models")
        return fetch(args.model, on_progress=sayer())
    return resolve(args.model)


def read(path: Path) -> SampleText:
    """A text file; DataError when it cannot be read."""
    try:
        return SampleText(path.read_text(encoding="utf-8-sig"), path.name)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start})") from error


def check_tokens(tokens: int) -> None:
    """UsageError for fewer tokens than one prediction takes."""
    if tokens < 2:
        raise UsageError(f"--tokens must be at least 2, not {tokens}")


def check_folder(folder: Path, option: str) -> None:
    """The folder, made where needed; UsageError before any work when nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option} {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {folder}: may not be written to")


def check_file(path: Path, option: str) -> None:
    """UsageError when the file cannot be written: its folder is missing, or it is one itself."""
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder; a file is meant")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path}: no folder {path.parent} to write in")


def sample(path: Path | None) -> SampleText:
    """The file given, else the first two LoCoMo conversations below $AGENTMEM_DATA."""
    if path is not None:
        return read(path)
    from agentmem.workloads import locomo
    from agentmem.workloads.base import WorkloadSpec
    from agentmem.workloads.text import history_text
    from agentmem.workloads.tokens import reference

    try:
        spec = WorkloadSpec(name="locomo", histories=2)
        loaded = locomo.load(spec, reference("words-v1"))
    except DataError as error:
        raise UsageError(
            "no text to measure on: give --text FILE, or set AGENTMEM_DATA to a folder with "
            f"{locomo.FILE}"
        ) from error
    texts = [history_text(conversation) for conversation in loaded.conversations]
    return SampleText("\n\n".join(texts), locomo.FILE)


class Bar:
    """A bar on a terminal, nothing elsewhere."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._tasks: dict[str, Any] = {}

    def at(self, what: str, done: float, whole: float) -> None:
        """Say how much of something is done."""
        if self._progress is None:
            return
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=whole)
        self._progress.update(self._tasks[what], completed=done)


@contextmanager
def bar() -> Iterator[Bar]:
    """Progress on the error stream, where that is a terminal."""
    if not sys.stderr.isatty():
        yield Bar(None)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        yield Bar(progress)
