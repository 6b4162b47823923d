"""Who computes next."""

from __future__ import annotations

import threading
import time

from agentmem.engine.turns import Turns


class _Queue:
    """Threads that wait for a turn one after the other, and the order in which they had it."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self.order = turns, []
        self.threads: list[threading.Thread] = []

    def join(self, name: str, kind: str) -> None:
        waiting = sum(self.turns.waiting(k) for k in ("interactive", "background"))

        def body() -> None:
            with self.turns.turn(kind):
                self.order.append(name)

        self.threads.append(threading.Thread(target=body))
        self.threads[-1].start()
        while sum(self.turns.waiting(k) for k in ("interactive", "background")) == waiting:
            time.sleep(0.0005)

    def end(self) -> list[str]:
        for thread in self.threads:
            thread.join(10)
        return self.order


def test_interactive_comes_first_and_each_class_in_order() -> None:
    queue = _Queue(Turns())
    with queue.turns.turn("background"):
        for name in ("b1", "i1", "b2", "i2"):
            queue.join(name, {"b": "background", "i": "interactive"}[name[0]])
    assert queue.end() == ["i1", "i2", "b1", "b2"]


def test_a_background_turn_is_late_but_comes() -> None:
    queue = _Queue(Turns(patience=2))
    with queue.turns.turn("interactive"):
        queue.join("b", "background")
        for name in ("i1", "i2", "i3", "i4"):
            queue.join(name, "interactive")
    assert queue.end() == ["i1", "i2", "b", "i3", "i4"]


def test_one_holds_the_turn_at_a_time_and_a_fault_gives_it_back() -> None:
    turns, inside, most = Turns(), 0, 0
    lock = threading.Lock()

    def work(number: int) -> None:
        nonlocal inside, most
        for _ in range(30):
            try:
                with turns.turn("interactive" if number % 2 else "background"):
                    with lock:
                        inside += 1
                        most = max(most, inside)
                    time.sleep(0.0001)
                    with lock:
                        inside -= 1
                    if number == 3:
                        raise ValueError("a fault")
            except ValueError:
                pass

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == 1
    with turns.turn("background"):
        pass
