"""The harness's end of a worker: the verbs of `MemorySystem`, each with a time-out."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from agentmem import memory
from agentmem.errors import MemorySystemError
from agentmem.memory import Answer, Endpoints, Limits, Retrieved, Stored, Unit
from agentmem.sandbox import isolation
from agentmem.sandbox.channel import ChannelClosedError, ChannelFaultError
from agentmem.sandbox.environment import Environment
from agentmem.sandbox.failure import FailureKind, WorkerFailure, tail
from agentmem.sandbox.inside import codec
from agentmem.sandbox.isolation import Isolation
from agentmem.sandbox.launch import WorkerOptions, config, launch
from agentmem.sandbox.post import Post
from agentmem.sandbox.process import WorkerProcess, exit_text
from agentmem.sandbox.specmodel import SystemSpec

_HELLO_S = 60.0
Lane = Literal["write", "read"]
"""Questions go in a lane of their own where they may overlap; everything else is in one."""
_LANES: tuple[Lane, ...] = ("write", "read")
_QUESTIONS = ("retrieve", "answer")


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """What came with the last value."""

    value: Any
    seconds: float
    """Inside the worker, without the pipe."""
    cpu_seconds: float
    noise_bytes: int
    """Printed to stdout and stderr during the verb."""
    errors_logged: int
    """Records at level ERROR of any logger."""
    blocked: int
    """Network attempts refused."""
    blocked_targets: tuple[str, ...]


class Worker:
    """One memory system in its own process. Not started until `start`; restartable after a failure.

    Raises WorkerFailure from every verb. One verb at a time; with `options.overlap` a question may
    be put from a second thread meanwhile. `kill` may come from any thread.
    """

    def __init__(
        self,
        spec: SystemSpec,
        env: Environment,
        store_dir: Path | str,
        log_dir: Path | str,
        allowed_ports: tuple[int, ...] = (),
        options: WorkerOptions | None = None,
    ) -> None:
        self.spec, self.env = spec, env
        self.store_dir, self.log_dir = Path(store_dir).resolve(), Path(log_dir).resolve()
        self.log = self.log_dir / f"{spec.name}.log"
        self.options = options or WorkerOptions()
        self._clocks: dict[Lane, float] = dict.fromkeys(_LANES, self.options.clock_s)
        self.isolation: Isolation | None = None
        self.last: Reply | None = None
        self.hello: Mapping[str, Any] = {}
        self._ports = allowed_ports
        self._process: WorkerProcess | None = None
        self._private: Path | None = None
        self._number = 0
        self._unit_at_s: float | None = None
        self._post: Post | None = None
        self._turns: dict[Lane, threading.Lock] = {lane: threading.Lock() for lane in _LANES}
        self._inside = 0
        """Threads that use the process; the last one out cleans up after a killed one."""
        self._doomed = False
        self._lock = threading.RLock()

    @property
    def clock_s(self) -> float:
        """Wall clock that the worker saw last; hand it on to resume where this worker stopped."""
        return self._clocks["write"]

    @clock_s.setter
    def clock_s(self, now_s: float) -> None:
        self._clocks["write"] = now_s

    def set_clock(self, now_s: float, lane: Lane) -> None:
        """What questions (`read`, where they overlap) or all other verbs are shown next."""
        self._clocks[lane if self.options.overlap else "write"] = now_s

    @property
    def pid(self) -> int | None:
        """Process id while it runs, for the meters."""
        process = self._process
        return process.pid if process is not None else None

    def start(self) -> None:
        """Spawn the process and import the adapter (setup, not construction)."""
        if self._process is not None:
            raise MemorySystemError(f"worker of {self.spec.name} is already running")
        with self._using():
            self._spawn()
            deadline_s = time.monotonic() + self._timeout("start")
            self._exchange_hello(min(deadline_s, time.monotonic() + _HELLO_S))
            self._receive("load", 0, deadline_s, self._log_size())

    def allow(self, ports: tuple[int, ...]) -> None:
        """Let the worker reach more loopback ports (servers that an adapter started)."""
        self._ports += ports
        self._call("allow", {"ports": ports}, 30.0)

    def open(self, endpoints: Endpoints, limits: Limits) -> None:
        args = {"dir": str(self.store_dir), "endpoints": vars(endpoints), "limits": vars(limits)}
        self._call("open", args)

    def construct(self, unit: Unit, timeout_s: float | None = None) -> Stored:
        self._clock_to(unit.at)
        value = self._call("construct", {"unit": dataclasses.asdict(unit)}, timeout_s, unit.unit_id)
        return codec.stored_from(value)

    def flush(self, timeout_s: float | None = None) -> None:
        self._call("flush", {}, timeout_s)

    def retrieve(
        self, user: str, question: str, k: int, timeout_s: float | None = None
    ) -> Retrieved:
        args = {"user": user, "question": question, "k": k}
        return codec.retrieved_from(self._call("retrieve", args, timeout_s))

    def answer(self, user: str, question: str, timeout_s: float | None = None) -> Answer:
        return codec.answer_from(
            self._call("answer", {"user": user, "question": question}, timeout_s)
        )

    def forget(self, user: str | None = None, unit_ids: tuple[str, ...] = ()) -> int:
        return int(self._call("forget", {"user": user, "unit_ids": unit_ids}))

    def maintain(self, timeout_s: float | None = None) -> None:
        self._call("maintain", {}, timeout_s)

    def footprint(self) -> dict[str, int]:
        return dict(self._call("footprint", {}))

    def snapshot(self, to: Path | str) -> None:
        """Copy the flushed store into folder `to`, which is made here."""
        target = Path(to).resolve()
        target.mkdir(parents=True, exist_ok=True)
        self._own(target)
        self._call("snapshot", {"to": str(target)})

    def close(self) -> None:
        """Close the store and end the process, whether closing works or not."""
        if self._process is None:
            return
        try:
            self._call("close", {})
            if self._process is not None:
                self._process.wait(10.0)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process and all it started at once; harmless when none runs."""
        with self._lock:
            if not self._inside:
                self._end()
            elif self._process is not None:
                self._doomed = True
                self._process.kill()  # the last thread waiting for an answer cleans up

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        with self._lock:
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._doomed and not self._inside:
                    self._end()

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(WorkerFailure):
            self.close()

    def _end(self) -> int | None:
        """Kill, reap and tidy up; the exit code if a process ran."""
        process, self._process, self._post = self._process, None, None
        self._doomed = False
        code = process.end() if process is not None else None
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
            self._private = None
        return code

    def _spawn(self) -> None:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self._mark("start")
        launched = launch(self.spec, self.env, self.store_dir, self.log, self.options)
        self._process, self.isolation, self._private = launched
        self._post = Post(self._process.channel)

    def _exchange_hello(self, deadline_s: float) -> None:
        process = self._process
        assert process is not None
        with self._failing("start", deadline_s):
            process.channel.send(
                config(self.spec, self.options, self.clock_s, self._ports), deadline_s
            )
            self.hello = process.channel.receive(deadline_s)
        refused = self.hello.get("refused")
        wire = self.hello.get("wire")
        if refused is None and wire not in (memory.WIRE, max(memory.WIRE - 1, 1)):
            refused = f"the worker speaks wire format {wire}, this harness {memory.WIRE}"
        if refused is not None:
            raise self._lost("protocol", str(refused))

    def _clock_to(self, at: str | None) -> None:
        """Move the frozen clock to a unit's time stamp, unless that lies in the past."""
        stamp_s = parse_at(at)
        if stamp_s is not None and (self._unit_at_s is None or stamp_s >= self._unit_at_s):
            self._unit_at_s = stamp_s
            self.clock_s = stamp_s - 1.0

    def _call(
        self,
        verb: str,
        args: Mapping[str, Any],
        timeout_s: float | None = None,
        unit: str | None = None,
    ) -> Any:
        lane: Lane = "read" if self.options.overlap and verb in _QUESTIONS else "write"
        with self._turns[lane], self._using():
            post = self._running()
            with self._lock:
                self._number += 1
                number = self._number
            self._clocks[lane] += 1.0
            self._mark(f"{verb} {unit or ''}".strip())
            before = self._log_size()
            deadline_s = time.monotonic() + (timeout_s or self._timeout(verb))
            request = {"id": number, "verb": verb, "args": args, "now_s": self._clocks[lane]}
            with self._failing(verb, deadline_s):
                post.send(request, deadline_s)
            return self._receive(verb, number, deadline_s, before)

    def _receive(self, verb: str, expected: int, deadline_s: float, log_before: int) -> Any:
        post = self._running()
        with self._failing(verb, deadline_s):
            reply = post.receive(expected, deadline_s)
        if reply.get("id") != expected or "ok" not in reply:
            raise self._lost("protocol", f"{verb}: the reply has id {reply.get('id')!r}")
        self.last = Reply(
            reply.get("value"),
            float(reply["seconds"]),
            float(reply["cpu_seconds"]),
            self._log_size() - log_before,
            int(reply["errors_logged"]),
            int(reply["blocked"]),
            tuple(reply["blocked_targets"]),
        )
        if reply["ok"]:
            return reply["value"]
        error = reply["error"]
        message = f"{verb}: {error['type']}: {error['message']}"
        if verb == "load":
            self._doomed = True
        raise WorkerFailure("raised", message, tail(self.log), error["traceback"])

    @contextlib.contextmanager
    def _failing(self, verb: str, deadline_s: float) -> Iterator[None]:
        """Turn what can happen to the channel into a WorkerFailure, the process ended."""
        waited_from_s = time.monotonic()
        try:
            yield
        except TimeoutError:
            waited_s = max(deadline_s - waited_from_s, 0.0)
            raise self._lost("timeout", f"{verb}: no answer in {waited_s:.1f} s") from None
        except ChannelClosedError:
            raise self._lost("died", verb) from None
        except ChannelFaultError as fault:
            raise self._lost("protocol", f"{verb}: {fault}") from None

    def _lost(self, kind: FailureKind, message: str) -> WorkerFailure:
        """End the process and say how it ended."""
        code = None
        with self._lock:
            self._doomed = True
            process = self._process
        if process is not None:
            if kind == "died":
                process.wait(2.0)
            process.kill()
            process.wait(2.0)
            code = process.code()
        if kind == "died" and code is not None:
            message = f"{message}: {exit_text(code)}"
        return WorkerFailure(kind, message, tail(self.log))

    def _running(self) -> Post:
        post = self._post
        if post is None:
            raise WorkerFailure("died", f"worker of {self.spec.name} is not running")
        return post

    def _timeout(self, verb: str) -> float:
        return float(getattr(self.spec.timeouts, verb)) * self.options.timeout_scale

    def _own(self, folder: Path) -> None:
        if self.isolation is not None and self.isolation.uid is not None:
            isolation.give(folder, self.isolation.uid)

    def _mark(self, text: str) -> None:
        """A heading in the log, so that output can be told apart by verb and unit."""
        with self.log.open("ab") as file:
            file.write(f"\n=== {text}\n".encode("utf-8", "backslashreplace"))

    def _log_size(self) -> int:
        return self.log.stat().st_size


def parse_at(at: str | None) -> float | None:
    """Seconds since the epoch of an ISO 8601 stamp, UTC unless it says otherwise."""
    if at is None:
        return None
    try:
        stamp = datetime.fromisoformat(at)
    except ValueError:
        return None
    return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()


def restore(snapshot: Path | str, store_dir: Path | str) -> None:
    """Put a snapshot in the place of a store whose worker is closed."""
    target = Path(store_dir)
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(snapshot, target)
