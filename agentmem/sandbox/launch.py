"""From a spec and its environment to a running, fenced-in worker process."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentmem import memory
from agentmem.sandbox import isolation
from agentmem.sandbox.environment import Environment
from agentmem.sandbox.isolation import Isolation
from agentmem.sandbox.process import WorkerProcess
from agentmem.sandbox.specmodel import SystemSpec

CLOCK_START_S = 1_704_067_200.0
"""2024-01-01 00:00 UTC: what the frozen clock shows before a unit with a time stamp arrives."""
_WORKER = Path(__file__).with_name("worker.py")
_FLAGS = ("-s", "-B")
"""Not -I: it would ignore PYTHONHASHSEED. The environment is ours alone anyway."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How the worker is fenced in and made repeatable."""

    frozen: bool = True
    """Frozen wall clock, seeded uuids and hashes; False is the upstream as it runs elsewhere."""
    seed: int = 0
    clock_s: float = CLOCK_START_S
    own_uid: bool = True
    """A user id of its own, where the machine allows."""
    address_space_bytes: int = 2**37
    open_files: int = 65_536
    timeout_scale: float = 1.0
    """Factor on the time-outs of system.toml."""
    overlap: bool = False
    """Questions may be put while another verb runs."""


def launch(
    spec: SystemSpec, env: Environment, store: Path, log: Path, options: WorkerOptions
) -> tuple[WorkerProcess, Isolation, Path]:
    """The process, its isolation, and the private folder (home, tmp) to delete after it."""
    private = Path(tempfile.mkdtemp(prefix=f"agentmem-{spec.name}-"))
    try:
        places = {"store": store, "home": private / "home", "tmp": private / "tmp"}
        for folder in places.values():
            folder.mkdir(parents=True, exist_ok=True)
        inside = sorted((_WORKER.parent / "inside").glob("*.py"))
        files = [spec.adapter, _WORKER, Path(memory.__file__), *inside]
        folders = [private, places["home"], places["tmp"], store]
        fence = isolation.choose_uid(spec, env.python, files, folders, options.own_uid)
        process = WorkerProcess(
            [str(env.python), *_FLAGS, str(_WORKER)],
            isolation.worker_env(spec, env.python, places, options.frozen),
            places["tmp"],
            log,
            fence.uid,
            private,
        )
    except BaseException:
        shutil.rmtree(private, ignore_errors=True)
        raise
    return process, fence, private


def config(
    spec: SystemSpec, options: WorkerOptions, clock_s: float, ports: tuple[int, ...]
) -> dict[str, Any]:
    """The first message to a worker."""
    return {
        "wire": memory.WIRE,
        "memory": memory.__file__,
        "adapter": str(spec.adapter),
        "ports": ports,
        "frozen": options.frozen,
        "seed": options.seed,
        "overlap": options.overlap,
        "now_s": clock_s,
        "rlimits": {
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": options.open_files,
            "RLIMIT_AS": options.address_space_bytes,
        },
    }
