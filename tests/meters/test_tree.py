"""Process trees: who belongs, and a sum that never falls nor counts a child twice."""

from __future__ import annotations

import os

import pytest

from agentmem.meters.process import ProcessReader, Stat
from agentmem.meters.tree import ProcessTree, members, scan

from .children import BUSY, SLEEP, child, said_ready, until

SPIN = "import time; s = time.process_time()\nwhile time.process_time() < s + {}: pass"


def _stat(parent: int, group: int = 0, session: int = 0, started: int = 0) -> Stat:
    return Stat("S", parent, group, session, 0.0, 0.0, 1, started)


def test_descendants_detached_daemons_and_old_members_belong() -> None:
    table = {
        1: _stat(0), 10: _stat(1, 10, 10), 11: _stat(10), 12: _stat(11), 13: _stat(1, 10),
        14: _stat(1, 14, 10), 15: _stat(14), 16: _stat(1), 17: _stat(1), 99: _stat(1),
    }  # fmt: skip
    assert members(10, table) == {10, 11, 12, 13, 14, 15}
    assert members(10, table, known=(16, 55)) == {10, 11, 12, 13, 14, 15, 16}
    assert members(10, table, apart=(11,)) == {10, 13, 14, 15}
    assert members(98, table) == set()


def test_scan_sees_this_process_and_its_child() -> None:
    with child(SLEEP) as one:
        table = scan()
        assert table[one.pid].parent == os.getpid()
        assert table[one.pid].session == one.pid


def test_running_child_is_added_to_its_parent() -> None:
    program = (
        f"p = subprocess.Popen([sys.executable, '-c', {BUSY!r}])\nprint('ready', flush=True)\n"
    )
    with child(program + SLEEP + "\np.kill()") as parent:
        said_ready(parent)
        tree, alone = ProcessTree(parent.pid), ProcessReader(parent.pid)
        tree.read()
        tree.adopt(scan())

        def ahead() -> bool:
            whole, own = tree.read(), alone.read()
            assert whole is not None and own is not None
            assert whole.processes == 2
            return whole.cpu_s > own.cpu_s + 0.3 and whole.rss_bytes > own.rss_bytes

        until(ahead)
        alone.close()
        tree.close()
        parent.communicate("\n")


def _follow(ignore: bool, spin_s: float) -> list[float]:
    """CPU seconds of a tree: before its child dies, after that, after as much work of its own."""
    child_program = SPIN.format(spin_s) + "\ninput()"
    program = (
        ("import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" if ignore else "")
        + f"command = [sys.executable, '-c', {child_program!r}]\n"
        "p = subprocess.Popen(command, stdin=subprocess.PIPE)\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "p.communicate(b'x'); print('ready', flush=True); sys.stdin.readline()\n"
        f"{SPIN.format(spin_s)}\nprint('ready', flush=True); sys.stdin.readline()"
    )
    with child(program) as parent:
        said_ready(parent)
        tree = ProcessTree(parent.pid)
        tree.read()
        tree.adopt(scan())
        assert len(tree.pids) == 2

        def cpu_s() -> float:
            reading = tree.read()
            assert reading is not None
            return reading.cpu_s

        until(lambda: cpu_s() > spin_s)
        seen = [cpu_s()]
        for _ in range(2):
            assert parent.stdin is not None
            parent.stdin.write("\n")
            parent.stdin.flush()
            said_ready(parent)
            seen.append(cpu_s())
        assert len(tree.pids) == 1
        tree.close()
        return seen


@pytest.mark.parametrize("ignore", [False, True], ids=["waited_for", "nobody_waits"])
def test_child_that_ends_is_counted_once_and_for_good(ignore: bool) -> None:
    running, ended, later = _follow(ignore, spin_s=0.6)
    # The slack holds the start of two interpreters and their ends, not another 0.6 s.
    assert running <= ended < running + 0.4
    assert ended + 0.3 < later < ended + 1.0


def test_alone_leaves_children_out() -> None:
    tree = ProcessTree(os.getpid(), alone=True)
    tree.read()
    with child(SLEEP):
        tree.adopt(scan())
        assert tree.pids == {os.getpid()}
    tree.close()


def test_tree_outlives_its_root_while_a_member_runs() -> None:
    program = f"subprocess.Popen([sys.executable, '-c', {BUSY!r}]); print('ready', flush=True)\n"
    with child(program + SLEEP) as parent:
        said_ready(parent)
        tree = ProcessTree(parent.pid)
        tree.read()
        tree.adopt(scan())
        (orphan,) = tree.pids - {parent.pid}
        try:
            first = tree.read()
            parent.kill()
            parent.wait()
            second = tree.read()
            assert first is not None and second is not None
            assert second.processes == 1 and second.cpu_s >= first.cpu_s
        finally:
            os.kill(orphan, 9)
        until(lambda: tree.read() is None)
        tree.close()
