"""The run's clock: seconds since a monotonic zero, and one wall-clock stamp (R5)."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class RunClock:
    """Call it for seconds since the run began; never goes back, whatever the wall clock does.

    `resumed_at_s` makes a resumed run count on from the last time in its journal, so that rows of
    both parts lie on one axis without overlapping; the pause between the parts is left out.
    """

    def __init__(self, resumed_at_s: float = 0.0) -> None:
        self._zero = time.monotonic() - resumed_at_s
        self.zero_ns = time.time_ns() - round(resumed_at_s * 1e9)
        """Wall clock at this clock's zero, nanoseconds since 1970; for exported spans only."""
        self.created = datetime.now(UTC).isoformat(timespec="seconds")
        """The one wall-clock stamp of the run."""

    def __call__(self) -> float:
        return time.monotonic() - self._zero
