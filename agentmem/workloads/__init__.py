"""Workloads: what a memory system is fed and asked. `build(spec)` makes one."""

from agentmem.workloads.base import History, Question, Workload, WorkloadSpec, content_hash
from agentmem.workloads.registry import build

__all__ = ["History", "Question", "Workload", "WorkloadSpec", "build", "content_hash"]
