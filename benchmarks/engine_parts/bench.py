"""One run: options, engines of a model, rounds in turn, rows as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine_parts.link import EngineFailedError, Link, close_all
from benchmarks.engine_parts.peers import PEERS, Peer, environment, options_for
from benchmarks.engine_parts.rows import Row
from benchmarks.engine_parts.screen import Screen

PACKAGE = "benchmarks.engine_parts"
DEFAULT_MODES = ("int8", "bf16")
"""What works without peers run in: the first of these that the engine has."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command was told."""

    models: tuple[str, ...]
    peers: tuple[str, ...]
    groups: tuple[str, ...]
    rounds: int
    threads: int
    quick: bool
    logs: Path
    perplexities: Mapping[tuple[str, str], tuple[float, float | None]]
    modes: tuple[str, ...]


@dataclass(slots=True)
class Bench:
    """What all kinds of work share."""

    options: Options
    screen: Screen
    probe: Link
    resolve: Callable[[str], Path]
    folder: Callable[[Path], Path]
    """A safetensors folder of a model file."""
    on_row: Callable[[Row], None]
    engines: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Facts of everything that was opened, or why it was not."""
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)
    """Why an engine is not there, by model and label."""

    def conditions(self) -> dict[str, float]:
        """The machine at this moment."""
        told = self.probe.ask("probe", seconds=0.1 if self.options.quick else 0.5)
        return {k: told[k] for k in ("bandwidth_gb_s", "matmul_gflop_s", "foreign_cores")}

    def open_ours(
        self, model: str, mode: str, load: dict[str, Any] | None = None, name: str = ""
    ) -> Link:
        """Our engine in a mode; EngineFailedError says why not."""
        label = f"{model} ours/{mode}{name}"
        if mode not in self.options.modes:
            raise EngineFailedError(f"mode {mode} is left out by --modes")
        self.screen.doing(f"loading {label}")
        given = {
            "path": str(self.resolve(model)),
            "threads": self.options.threads,
            "mode": mode,
            "load": load or {},
        }
        return self._open(label, "ours", given)

    def open_default(
        self, model: str, load: dict[str, Any] | None = None, name: str = ""
    ) -> tuple[Link, str]:
        """Our engine in its default mode, or the next that it has."""
        reason = ""
        for mode in DEFAULT_MODES:
            try:
                return self.open_ours(model, mode, load, name), mode
            except EngineFailedError as error:
                reason = reason or str(error)
        raise EngineFailedError(reason)

    def open_peer(self, model: str, peer: Peer, name: str = "") -> Link:
        """A peer with a model; EngineFailedError says why not."""
        python = peer.python()
        if python is None:
            self.engines[f"{model} {peer.name}{name}"] = {"missing": peer.missing()}
            raise EngineFailedError(peer.missing())
        label = f"{model} {peer.name}{name}"
        path = self.resolve(model)
        if peer.reads == "gguf" and path.is_dir():
            raise EngineFailedError(f"{peer.title} reads GGUF files, {path} is a folder")
        self.screen.doing(f"loading {label}")
        given = options_for(peer, path, self.options.threads, self.folder)
        return self._open(label, peer.module, given, python)

    def _open(
        self, label: str, module: str, given: dict[str, Any], python: str | None = None
    ) -> Link:
        log = self.options.logs / f"{label.replace('/', '-').replace(' ', '-')}.log"
        extra = {} if python is None else {"python": python}
        try:
            variables = environment(self.options.threads)
            link = Link(f"{PACKAGE}.{module}", given, log=log, environment=variables, **extra)
        except EngineFailedError as error:
            self.engines[label] = {"missing": str(error)}
            raise
        self.engines[label] = link.facts
        return link

    def emit(self, row: Row, link: Link | None = None) -> None:
        """Complete a row with what is known of the engine, and hand it on."""
        if link is not None:
            facts = link.facts
            row.threads, row.backend, row.kv = facts["threads"], facts["backend"], facts["kv"]
            row.notes += facts.get("notes", [])
        known = self.options.perplexities
        found = known.get((row.model, row.mode)) or known.get(("", row.mode))
        if found is not None:
            row.perplexity, row.perplexity_loss = found
        self.screen.row(row)
        self.on_row(row)


@contextmanager
def closing(links: dict[str, Link]) -> Iterator[dict[str, Link]]:
    """Ends every engine in the dictionary, also those that were added later."""
    try:
        yield links
    finally:
        close_all(list(links.values()))


def peers_of(options: Options) -> list[Peer]:
    """The peers that were asked for."""
    return [PEERS[name] for name in options.peers]
