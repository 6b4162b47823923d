"""A wall clock that stands still inside the worker, so that prompts with dates repeat (R10).

`time.monotonic` and `time.perf_counter` keep running: durations and time-outs stay true. The clock
moves by a microsecond per reading, and by what the verb's own thread sleeps, so that polling
loops end. A question that runs beside another verb has a clock of its own in its own thread;
threads that the upstream started see the other verb's. Readings made in C (SQLite's
CURRENT_TIMESTAMP, numpy's "now") are out of reach.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import itertools
import threading
import time
from typing import Any

_TICK_NS = 1_000


class _Hands:
    """What one thread is shown."""

    def __init__(self, now_s: float) -> None:
        self.base_ns = int(now_s * 1e9)
        self.slept_ns = 0
        self.ticks = itertools.count()


class FrozenClock:
    """Seconds since the epoch as set by the harness before each verb."""

    def __init__(self, now_s: float) -> None:
        self._sleep = time.sleep
        self._main = threading.get_ident()
        self._hands = {self._main: _Hands(now_s)}

    def set(self, now_s: float) -> None:
        """Set the clock of the verb in this thread."""
        self._hands[threading.get_ident()] = _Hands(now_s)

    def now_ns(self) -> int:
        hands = self._hands.get(threading.get_ident()) or self._hands[self._main]
        return hands.base_ns + hands.slept_ns + next(hands.ticks) * _TICK_NS

    def now_s(self) -> float:
        return self.now_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        """Sleep for real; in a verb's thread the clock moves along."""
        self._sleep(seconds)
        hands = self._hands.get(threading.get_ident())
        if hands is not None:
            hands.slept_ns += int(seconds * 1e9)

    def install(self) -> None:
        """Replace the readings of `time` and `datetime` in this process."""
        self._patch_time()
        self._patch_datetime()

    def _patch_time(self) -> None:
        now_s = self.now_s
        for name in ("gmtime", "localtime", "ctime"):
            real = getattr(time, name)
            setattr(time, name, lambda secs=None, _r=real: _r(now_s() if secs is None else secs))
        asctime, strftime, gettime = time.asctime, time.strftime, time.clock_gettime
        real_clock = time.CLOCK_REALTIME
        patches: dict[str, Any] = {
            "time": now_s,
            "time_ns": self.now_ns,
            "sleep": self.sleep,
            "asctime": lambda t=None: asctime(time.localtime() if t is None else t),
            "strftime": lambda form, t=None: strftime(form, time.localtime() if t is None else t),
            "clock_gettime": lambda clock: now_s() if clock == real_clock else gettime(clock),
        }
        for name, patch in patches.items():
            setattr(time, name, patch)

    def _patch_datetime(self) -> None:
        """Swap two methods inside the C type: its identity, subclasses and pickles survive."""
        now_s, utc = self.now_s, datetime.timezone.utc  # noqa: UP017 (runs on 3.10)

        def now(cls: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> Any:
            return cls.fromtimestamp(now_s(), tz)

        def utcnow(cls: type[datetime.datetime]) -> Any:
            return cls.fromtimestamp(now_s(), utc).replace(tzinfo=None)

        namespace: dict[str, Any] = gc.get_referents(datetime.datetime.__dict__)[0]
        namespace["now"] = classmethod(now)
        namespace["utcnow"] = classmethod(utcnow)
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(datetime.datetime))
        if abs(datetime.datetime.now(utc).timestamp() - now_s()) > 1:
            raise RuntimeError("this interpreter's clock cannot be frozen; use clock = 'native'")
