"""Process trees: who belongs, and a sum that never falls nor counts a child twice."""

from __future__ import annotations

import os

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


def _follow(ignore: bool, spin_s: float) -> tuple[float, float]:
    """CPU seconds of a tree just before its child dies and at the end."""
    program = (
        ("import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" if ignore else "")
        + f"p = subprocess.Popen([sys.executable, '-c', {SPIN.format(spin_s) + '; input()'!r}], "
        "stdin=subprocess.PIPE)\nprint('ready', flush=True); sys.stdin.readline()\n"
        "p.communicate(b'x'); print('gone', flush=True); sys.stdin.readline()"
    )
    with child(program.replace("; input()", "\\ninput()")) as parent:
        said_ready(parent)
        tree = ProcessTree(parent.pid)
        tree.read()
        tree.adopt(scan())
        assert len(tree.pids) == 2

        def spun() -> bool:
            reading = tree.read()
            return reading is not None and reading.cpu_s > spin_s

        until(spun)
        before = tree.read()
        assert parent.stdin is not None and parent.stdout is not None
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "gone\n"
        after = tree.read()
        assert before is not None and after is not None
        assert len(tree.pids) == 1
        tree.close()
        return before.cpu_s, after.cpu_s


def test_child_that_was_waited_for_is_counted_once() -> None:
    before, after = _follow(ignore=False, spin_s=0.6)
    assert before <= after < before + 0.4


def test_child_that_nobody_waits_for_is_not_forgotten() -> None:
    before, after = _follow(ignore=True, spin_s=0.6)
    assert before <= after < before + 0.4


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
