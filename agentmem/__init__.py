"""Stage-aware profiler for agent memory: tokens, calls, seconds, bytes and joules per phase.

`agentmem.load(run_dir)` reads a finished run into pandas frames; it is imported on first use, so
that `import agentmem` stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentmem.analysis.load import Run, load

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name in {"load", "Run"}:
        from agentmem.analysis import load as module

        return getattr(module, name)
    raise AttributeError(f"module 'agentmem' has no attribute {name!r}")
