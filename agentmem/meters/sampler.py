"""The sampler: a thread that reads the watched processes ten times a second.

It reads through kept descriptors (some ten microseconds a process) and looks for new children at
most once a second, and never for more than a hundredth of the time. Its own cost is in `cost_s`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from agentmem.errors import AgentMemError, UsageError
from agentmem.meters import process
from agentmem.meters.base import ProcessReading
from agentmem.meters.tree import ProcessTree, scan
from agentmem.records import Sample

_SCAN_S = 1.0
_SCAN_SHARE = 0.01


class Sampler:
    """Watches process trees by role and hands one `Sample` per tree and tick to `sink`.

    `also` holds further things to do at every tick (energy meters). An error of the sink that a
    user can act on (a full disk) ends the sampling and is kept in `failure`.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        sink: Callable[[Sample], None],
        hz: float = 10.0,
        also: tuple[Callable[[], None], ...] = (),
    ) -> None:
        self.failure: AgentMemError | None = None
        self.cost_s = 0.0
        """CPU time that the sampler's thread has used."""
        self._clock, self._sink, self._period_s, self._also = clock, sink, 1 / hz, also
        self._trees: dict[int, tuple[str, ProcessTree]] = {}
        self._next_scan_s = 0.0
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, role: str, pid: int, *, tree: bool = True) -> None:
        """Start reading `pid` and, with `tree`, all it starts. Raises UsageError if it is gone.

        Watch this process itself with `tree=False`: workers and the engine are its children.
        """
        try:
            watched = ProcessTree(pid, alone=not tree)
        except OSError as error:
            raise UsageError(f"process {pid} ({role}) cannot be watched: it has ended") from error
        with self._lock:
            self.unwatch(pid)
            self._trees[pid] = (role, watched)
            watched.read()
            self._scan()

    def unwatch(self, pid: int) -> None:
        """Stop reading a tree; one that is not watched is no error."""
        with self._lock:
            _, tree = self._trees.pop(pid, ("", None))
            if tree is not None:
                tree.close()

    def reading(self, target: int | str) -> ProcessReading | None:
        """Counters of a watched tree now, by pid or by role (the latest watched under it).

        None when it is not watched or has ended. Costs tens of microseconds: meant for the edges
        of windows, from any thread.
        """
        with self._lock:
            tree = self._find(target)
            return None if tree is None else tree.read()

    def pss(self, target: int | str) -> int | None:
        """Proportional set size of a watched tree, bytes; slow, for the ends of phases only."""
        with self._lock:
            tree = self._find(target)
            pids = set() if tree is None else tree.pids
        sizes = [size for size in map(process.pss, pids) if size is not None]
        return sum(sizes) if sizes else None

    def reset_peak(self, target: int | str) -> bool:
        """Start the resident peak anew, to have one per phase; False where not permitted."""
        with self._lock:
            tree = self._find(target)
            return tree is not None and tree.reset_peak()

    def mark(self, target: int | str) -> Sample | None:
        """Emit one sample with the proportional set size in it; for the ends of phases."""
        pss_bytes = self.pss(target)
        with self._lock:
            tree = self._find(target)
            reading = None if tree is None else tree.read()
            if tree is None or reading is None:
                return None
            sample = _sample(self._clock(), self._trees[tree.pid][0], tree.pid, reading, pss_bytes)
        self._sink(sample)
        return sample

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="agentmem-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and give all descriptors back; watched processes are not touched."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for pid in list(self._trees):
                self.unwatch(pid)

    def tick(self) -> None:
        """One round: read every tree, emit its sample. What the thread does, callable in tests."""
        with self._lock:
            fresh = time.monotonic() >= self._next_scan_s
            if fresh:
                self._scan()
            samples = [s for p in list(self._trees) if (s := self._one(p, fresh)) is not None]
        for sample in samples:
            self._sink(sample)
        for action in self._also:
            action()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            try:
                self.tick()
            except AgentMemError as error:
                self.failure = error
                return
            finally:
                self.cost_s = time.thread_time()
            # A late tick is not made up for: the next one comes a period from now.
            due = max(due + self._period_s, time.monotonic())
            self._stopping.wait(due - time.monotonic())

    def _one(self, pid: int, fresh: bool) -> Sample | None:
        role, tree = self._trees[pid]
        reading = tree.read(peak=fresh)
        if reading is None:
            return None
        return _sample(self._clock(), role, pid, reading, None)

    def _scan(self) -> None:
        started_s = time.monotonic()
        table = scan() if any(not t.alone for _, t in self._trees.values()) else {}
        for pid, (_, tree) in self._trees.items():
            tree.adopt(table, apart=self._trees.keys() - {pid})
        took_s = time.monotonic() - started_s
        self._next_scan_s = started_s + max(_SCAN_S, took_s / _SCAN_SHARE)

    def _find(self, target: int | str) -> ProcessTree | None:
        if isinstance(target, int):
            return self._trees[target][1] if target in self._trees else None
        named = [tree for role, tree in self._trees.values() if role == target]
        return named[-1] if named else None


def _sample(
    at_s: float, role: str, pid: int, reading: ProcessReading, pss_bytes: int | None
) -> Sample:
    return Sample(
        at_s=at_s,
        role=role,
        pid=pid,
        cpu_s=reading.cpu_s,
        rss_bytes=reading.rss_bytes,
        peak_rss_bytes=reading.peak_rss_bytes,
        pss_bytes=pss_bytes,
        read_bytes=reading.read_bytes,
        write_bytes=reading.write_bytes,
        wait_s=reading.wait_s,
        threads=reading.threads,
    )
