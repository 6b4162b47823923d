"""Starting a worker's process and ending it with everything it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from agentmem.sandbox.channel import Channel

_GUARD = 'read _; kill -s KILL -- "-$1"; sleep 1; rm -rf -- "$2"'
"""Waits for the end of its input, which comes when the harness dies; kills the group, tidies up."""


class WorkerProcess:
    """A process group of its own, a channel to it, and a guard that outlives the harness."""

    def __init__(
        self,
        command: Sequence[str],
        env: dict[str, str],
        cwd: Path,
        log: Path,
        uid: int | None,
        private: Path,
    ) -> None:
        """`private` is the folder to delete should the harness die."""
        request_read, request_write = os.pipe()
        reply_read, reply_write = os.pipe()
        owner = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [*command, str(request_read), str(reply_write)],
                    env=env,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(request_read, reply_write),
                    start_new_session=True,
                    **owner,  # type: ignore[call-overload]
                )
        except BaseException:
            os.close(request_write)
            os.close(reply_read)
            raise
        finally:
            os.close(request_read)
            os.close(reply_write)
        self.pid: int = self._process.pid
        self.channel = Channel(reply_read, request_write, self.alive)
        self._guard = self._start_guard(private)

    def alive(self) -> bool:
        """Without reaping, so that the process id stays ours until `end`."""
        state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return state is None

    def code(self) -> int | None:
        """Exit code, negative for a signal, without reaping; None while it runs."""
        state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if state is None:
            return None
        return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status

    def wait(self, timeout_s: float) -> bool:
        """True when the process ended within the time."""
        deadline_s = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() > deadline_s:
                return False
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        """Kill the group and strays that left it. Any thread may call this before `end`."""
        for pid in descendants(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill everything, reap, close the channel; returns the exit code."""
        self.kill()
        # the guard goes first: once reaped, the group's number may be given to others
        self._guard.kill()
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        code = self._process.wait()
        self.channel.close()
        return int(code)

    def _start_guard(self, private: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "agentmem-guard", str(self.pid), str(private)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={},
        )


def descendants(pid: int) -> list[int]:
    """Children of `pid`, their children and so on, those that left its group included."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(after_name[1]), []).append(int(entry.name))
    found: list[int] = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def exit_text(code: int) -> str:
    """The exit of a process in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
