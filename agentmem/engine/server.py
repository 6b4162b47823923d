"""The engine as a server process: load, listen, say so, end cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import logging
import os
import select
import signal
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from agentmem.engine.api.app import build_app, drain
from agentmem.engine.api.limits import Keys, Limits
from agentmem.engine.api.state import ChatModel, EmbedModel, Served
from agentmem.engine.options import MOST_THREADS, EngineOptions
from agentmem.errors import EngineError, UsageError

if TYPE_CHECKING:
    from agentmem.engine.core import EngineCore
    from agentmem.engine.embed import Embedder

log = logging.getLogger(__name__)
SHUTDOWN_S = 2.0
LEAST_WINDOW = 16


def serve(
    model_path: Path | None,
    embedder_path: Path | None,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    engine: EngineOptions | None = None,
    ready_fd: int | None = None,
    parent_pid: int | None = None,
    aliases: frozenset[str] = frozenset(),
    truncate_embeddings: bool = True,
    limits: Limits | None = None,
    keys: Sequence[str] = (),
    session_dir: Path | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; either path may be None, not both.

    When listening, one JSON line `{"ready": true, "url": ..., "pid": ...}` goes to `ready_fd`
    (stdout by default). With `parent_pid` the process ends when that one does. Told to stop, it
    takes no new calls and ends when those in progress have, or after `limits.grace_s`; a second
    signal ends them at once. Raises UsageError, EngineError (the port is taken) or DataError (a
    model file), each before listening.
    """
    if model_path is None and embedder_path is None:
        raise UsageError("nothing to serve: give a model, an embedder or both")
    engine = engine or EngineOptions()
    threads = engine.get("threads")
    check_sizes(threads, engine.get("window"))
    limits = limits or Limits()
    check_limits(limits)
    make_folder(session_dir, "--session-dir")
    make_folder(engine.get("session_ledger"), "--session-ledger")
    if parent_pid is not None:
        end_with(parent_pid)
    if not keys and not is_local(host):
        log.warning("listening on %s without API keys: whoever reaches it may use it", host)
    # The port first: a mistake there should not cost the time of loading a model.
    listener = bind(host, port)
    with contextlib.ExitStack() as stack:
        stack.callback(listener.close)
        served = Served(None, None, aliases, limits, Keys(keys), session_dir)
        stack.callback(let_go, served)
        if model_path is not None:
            core = load_core(model_path, engine)
            stack.callback(core.close)
            served.chat, served.mover = ChatModel(core), core
            for note in core.notes:
                log.warning("%s", note)
        if embedder_path is not None:
            embedder = load_embedder(embedder_path, threads)
            served.embed = beside(embedder, served.chat, truncate_embeddings)
            stack.callback(served.embed.close)
        asyncio.run(_run(served, listener, ready_fd))


def let_go(served: Served) -> None:
    """Forget the models: the loop's remains may keep `served` itself, and they are large."""
    served.chat = served.embed = served.mover = None


def beside(embedder: Embedder, chat: ChatModel | None, truncate: bool) -> EmbedModel:
    """The embedding model, taking turns with the generating one where there is one."""
    if chat is not None:
        embedder.share(chat.core)
    return EmbedModel(embedder, truncate=truncate)


def check_sizes(threads: int | None, window: int | None) -> None:
    """UsageError for what no machine or model has; None is the default of either."""
    if threads is not None and not 0 <= threads <= MOST_THREADS:
        raise UsageError(f"--threads must be 1 to {MOST_THREADS}, or 0 for all; got {threads}")
    if window is not None and window < LEAST_WINDOW:
        raise UsageError(f"--window must be {LEAST_WINDOW} tokens at least; got {window}")


def check_limits(limits: Limits) -> None:
    """UsageError for limits that let nothing through."""
    least = {
        "--max-body-mb": (limits.max_body_bytes, 1),
        "--max-concurrency": (limits.max_concurrency, 1),
        "--timeout": (limits.timeout_s, 0.001),
        "--grace": (limits.grace_s, 0.0),
    }
    for name, (value, low) in least.items():
        if value is not None and not value >= low:
            raise UsageError(f"{name} must be {low:g} at least; got {value:g}")


def make_folder(folder: Path | str | None, option: str) -> None:
    """A folder to write into, made where needed; UsageError when it cannot be."""
    if folder is None:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise UsageError(f"{option} {folder}: {err.strerror}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {folder}: may not be written to")


def is_local(host: str) -> bool:
    """Only processes of this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_core(path: Path, engine: EngineOptions) -> EngineCore:
    """The generating model. Imports torch, which takes seconds: not before it is needed."""
    from agentmem.engine.core import EngineCore

    return EngineCore.load(path, **engine)


def load_embedder(path: Path, threads: int | None) -> Embedder:
    """The embedding model; imports torch too."""
    from agentmem.engine.embed import Embedder

    return Embedder.load(path, threads=threads)


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet; EngineError when the address cannot be had."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OverflowError:
        listener.close()
        raise UsageError(f"a port is a number from 0 to 65535, not {port}") from None
    except UnicodeError:
        listener.close()
        raise UsageError(f"{host!r} is no host name") from None
    except OSError as err:
        listener.close()
        hint = "; stop what listens there, or pass --port 0 for a free one"
        taken = hint if err.errno == errno.EADDRINUSE else ""
        raise EngineError(f"cannot listen on {host}:{port}: {err.strerror}{taken}") from None
    return listener


def end_with(parent_pid: int) -> None:
    """End this process when `parent_pid` ends, however it ends."""
    try:
        handle = os.pidfd_open(parent_pid)
    except OSError as err:
        raise UsageError(f"--parent-pid {parent_pid}: {err.strerror}") from None

    def watch() -> None:
        waiter = select.poll()
        waiter.register(handle, select.POLLIN)
        waiter.poll()
        # Nobody is left to read an answer: the second signal ends the calls in progress.
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(SHUTDOWN_S / 4)
        threading.Event().wait(2 * SHUTDOWN_S)
        os._exit(1)

    threading.Thread(target=watch, name="agentmem-parent", daemon=True).start()


async def _run(served: Served, listener: socket.socket, ready_fd: int | None) -> None:
    logging.getLogger("aiohttp.server").addFilter(ours)
    runner = web.AppRunner(
        build_app(served),
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_S,
        access_log=None,
    )
    await runner.setup()
    stopped, hurried = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        (hurried if stopped.is_set() else stopped).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await web.SockSite(runner, listener).start()
        announce(listener, ready_fd)
        await stopped.wait()
        # Still listening: who asks now is told, instead of finding nobody there.
        await drain(served, hurried)
    finally:
        await runner.cleanup()


def ours(record: logging.LogRecord) -> bool:
    """Whether a log line is of a fault here: not of a client that sends what is no HTTP."""
    fault = record.exc_info[1] if record.exc_info else None
    return not isinstance(fault, HttpProcessingError | web.RequestPayloadError)


def announce(listener: socket.socket, ready_fd: int | None) -> None:
    """Write the ready line."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    line = json.dumps({"ready": True, "url": f"http://{shown}:{port}/v1", "pid": os.getpid()})
    if ready_fd is None:
        print(line, flush=True)
        return
    with os.fdopen(ready_fd, "w") as sink:
        print(line, file=sink)
