"""The process a memory system runs in: `python worker.py IN_FD OUT_FD`, standard library only.

Reads one JSON object a line from IN_FD and answers each with one line on OUT_FD; stdout and stderr
belong to the upstream. docs/wire-protocol.md describes the messages.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import logging
import os
import platform
import resource
import sys
import threading
import time
import traceback
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

_HERE = Path(__file__).resolve().parent
_INSIDE = _HERE / "inside"
_PR_SET_CHILD_SUBREAPER = 36
_TRACEBACK_CHARS = 20_000


def main() -> None:
    requests = os.fdopen(int(sys.argv[1]), "rb")
    replies = os.fdopen(int(sys.argv[2]), "wb")
    for channel in (requests, replies):
        os.set_inheritable(channel.fileno(), False)
    line_buffered(sys.stdout)
    config = json.loads(requests.readline())
    load_seam(Path(config["memory"]))
    if not greet(replies, config):
        return
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    limit(config["rlimits"])
    loop = Loop(config)
    send(replies, loop.answer({"id": 0, "verb": "load", "args": {}, "now_s": config["now_s"]}))
    if config.get("overlap"):
        from agentmem.sandbox.inside.lanes import serve_two

        serve_two(requests, loop, lambda reply: send(replies, reply))
        return
    for line in requests:
        request = json.loads(line)
        send(replies, loop.answer(request))
        if request["verb"] == "close":
            return


def line_buffered(stream: Any) -> None:
    """What the upstream printed must be in the log even when it is killed."""
    stream.reconfigure(line_buffering=True, errors="backslashreplace")


def load_seam(memory: Path) -> None:
    """Make `agentmem.memory` and these modules importable, and nothing else of agentmem."""
    folders: dict[str, list[str]] = {
        "agentmem": [],
        "agentmem.sandbox": [],
        "agentmem.sandbox.inside": [str(_INSIDE)],
    }
    for name, folder in folders.items():
        package = types.ModuleType(name)
        package.__path__ = folder
        sys.modules[name] = package
    sys.modules["agentmem"].memory = load_file("agentmem.memory", memory)  # type: ignore[attr-defined]
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]
    sys.meta_path.insert(0, _Fence())


class _Fence:
    """Keeps the rest of agentmem out, also where an editable install has a finder of its own."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.startswith("agentmem.") and not name.startswith("agentmem.sandbox.inside."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def load_file(name: str, path: Path, package: bool = False) -> types.ModuleType:
    """Import one file under a name of our choice."""
    folder = [str(path.parent)] if package else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folder)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def greet(replies: BinaryIO, config: Mapping[str, Any]) -> bool:
    """Say which wire format is spoken; refuse one that is neither ours nor the previous."""
    from agentmem.memory import WIRE

    refused = None
    if config["wire"] not in (WIRE, max(WIRE - 1, 1)):
        refused = f"the harness speaks wire format {config['wire']}, this worker {WIRE}"
    hello = {
        "wire": WIRE,
        "python": platform.python_version(),
        "pid": os.getpid(),
        "uid": os.getuid(),
        "refused": refused,
    }
    send(replies, hello)
    return refused is None


def limit(limits: Mapping[str, int]) -> None:
    """Lower rlimits, never raise them. Keys are names such as RLIMIT_AS."""
    for name, value in limits.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        capped = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (capped, capped))


def send(replies: BinaryIO, message: Mapping[str, Any]) -> None:
    replies.write(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")
    replies.flush()


class ErrorCount(logging.Handler):
    """Counts ERROR records of any logger, and passes warnings on to the log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._verbs: dict[int, int] = {}
        self._main = threading.get_ident()

    def begin(self) -> None:
        """Start counting for the verb in this thread; threads of the upstream count as main."""
        self._verbs[threading.get_ident()] = 0

    def take(self) -> int:
        return self._verbs[threading.get_ident()]

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            thread = threading.get_ident()
            thread = thread if thread in self._verbs else self._main
            self._verbs[thread] = self._verbs.get(thread, 0) + 1
        print(f"{record.levelname} {record.name}: {record.getMessage()}", file=sys.stderr)


class Loop:
    """Answers requests; holds the system and what is frozen around it.

    One at a time, or with "overlap" in the configuration a question beside another verb, each
    lane always in the same thread.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        from agentmem.sandbox.inside.clock import FrozenClock
        from agentmem.sandbox.inside.network import NetworkGuard
        from agentmem.sandbox.inside.seeds import Seeds

        self._config = config
        self._system: Any = None
        self._clock = FrozenClock(config["now_s"]) if config["frozen"] else None
        self._seeds = Seeds(config["seed"]) if config["frozen"] else None
        self._network = NetworkGuard(tuple(config["ports"]))
        self._errors = ErrorCount()
        logging.getLogger().addHandler(self._errors)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one request. The one place where every exception is caught."""
        verb, args = request["verb"], request["args"]
        # Of two verbs at once, CPU time and log records can be told apart by thread only.
        cpu_s = time.thread_time if self._config.get("overlap") else time.process_time
        self._errors.begin()
        start_s, start_cpu_s = time.perf_counter(), cpu_s()
        reply: dict[str, Any] = {"id": request["id"], "ok": True, "value": None, "error": None}
        try:
            self._freeze(request)
            reply["value"] = self._load() if verb == "load" else self._call(verb, args)
        except (Exception, SystemExit) as error:
            reply.update(ok=False, error=describe(error))
        reply["seconds"] = time.perf_counter() - start_s
        reply["cpu_seconds"] = cpu_s() - start_cpu_s
        reply["errors_logged"] = self._errors.take()
        reply["blocked"], reply["blocked_targets"] = self._network.take()
        return reply

    def _freeze(self, request: Mapping[str, Any]) -> None:
        if self._clock is not None and self._seeds is not None:
            self._clock.set(request["now_s"])
            # paths and ports differ from run to run and must not reach the seed
            args = {} if request["verb"] in ("open", "snapshot", "allow") else request["args"]
            self._seeds.begin(request["verb"] + json.dumps(args, sort_keys=True))

    def _load(self) -> dict[str, Any]:
        """Freeze, fence, and only then import the upstream."""
        from agentmem.memory import AnsweringSystem, MemorySystem

        if self._clock is not None and self._seeds is not None:
            self._clock.install()
            self._seeds.install()
        self._network.install()
        adapter = Path(self._config["adapter"])
        package = types.ModuleType("system_under_test")
        package.__path__ = [str(adapter.parent)]
        sys.modules["system_under_test"] = package
        module = load_file("system_under_test.adapter", adapter)
        classes = [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, MemorySystem)
            and value.__module__ == module.__name__
            and not value.__name__.startswith("_")
        ]
        if len(classes) != 1:
            names = [c.__name__ for c in classes]
            raise TypeError(f"{adapter} must define one MemorySystem subclass, found {names}")
        self._system = classes[0]()
        return {"class": classes[0].__name__, "answers": issubclass(classes[0], AnsweringSystem)}

    def _call(self, verb: str, args: Mapping[str, Any]) -> Any:
        from agentmem.sandbox.inside import codec

        if self._system is None:
            raise RuntimeError("the adapter was not loaded")
        if verb == "allow":
            self._network.ports.update(args["ports"])
            return None
        return codec.call(self._system, verb, args)


def describe(error: BaseException) -> dict[str, str]:
    text = "".join(traceback.format_exception(error))
    return {
        "type": type(error).__name__,
        "message": str(error),
        "traceback": text[-_TRACEBACK_CHARS:],
    }


if __name__ == "__main__":
    main()
