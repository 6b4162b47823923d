"""The engines to compare with: where each lives, and why one is not there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentmem.modelfiles.fetch import cache_dir

SETUP = "python benchmarks/engine.py --setup-peers"


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine: its driver, its environment, what it reads, what its weights are in."""

    name: str
    title: str
    module: str
    """Driver, under benchmarks.engine_parts."""
    package: str
    """Import name that has to be there."""
    environment: str
    """Folder under AGENTMEM_CACHE/peers/envs; an environment that is not there is this one."""
    reads: str
    """`gguf` or `folder`."""
    bf16: bool
    """Runs bf16 weights: compared with our bf16 where like is to be compared with like."""
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def home(self) -> Path:
        """Its own environment."""
        return cache_dir() / "peers" / "envs" / self.environment

    def python(self) -> str | None:
        """The interpreter that can import it; None when there is none."""
        own = self.home / "bin" / "python"
        if own.is_file() and _holds(self.home, self.package):
            return str(own)
        return sys.executable if importlib.util.find_spec(self.package) else None

    def missing(self) -> str:
        """Why it cannot be run, and what to do."""
        return f"{self.title} is not installed: {SETUP} {self.environment}"


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "llama.cpp", "llama.cpp (llama-cpp-python)", "peer_llama", "llama_cpp", "llama.cpp",
            "gguf", False,
        ),
        Peer(
            "transformers", "transformers", "peer_transformers", "transformers", "transformers",
            "folder", True,
        ),
        Peer(
            "vllm", "vLLM for CPUs, eager", "peer_vllm", "vllm", "vllm", "folder", True,
            (("eager", True),),
        ),
        Peer(
            "vllm-compiled", "vLLM for CPUs, compiled", "peer_vllm", "vllm", "vllm", "folder",
            True, (("eager", False),),
        ),
    )
}  # fmt: skip
DEFAULT = ("llama.cpp", "transformers", "vllm")


def options_for(
    peer: Peer, path: Path, threads: int, folder: Callable[[Path], Path]
) -> dict[str, Any]:
    """What its driver is started with; `folder` makes a safetensors folder of a GGUF file."""
    given = folder(path) if peer.reads == "folder" else path
    return {"path": str(given), "threads": threads, **dict(peer.options)}


def environment(threads: int) -> dict[str, str]:
    """Thread counts that libraries read when they are loaded."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
    }


def _holds(home: Path, package: str) -> bool:
    return any(home.glob(f"lib/python*/site-packages/{package}/__init__.py"))
