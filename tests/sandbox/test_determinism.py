"""The worker's frozen clock and seeded ids (R10)."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentmem.sandbox.client import Worker
from agentmem.sandbox.launch import CLOCK_START_S, WorkerOptions
from tests.sandbox.systems import ENDPOINTS, LIMITS, probe, unit, worker_of

HEAD = """
import datetime, json, pickle, random, sqlite3, threading, time, uuid
from datetime import date, datetime as dt
from uuid import uuid4

class Later(dt):
    pass
"""
LOOK = """
monotonic_s, real = time.monotonic(), time.perf_counter()
threaded = []
thread = threading.Thread(target=lambda: threaded.append(str(uuid4())))
thread.start()
thread.join()
seen = {
    "time": time.time(), "time_ns": time.time_ns(), "now": dt.now().isoformat(),
    "utcnow": dt.utcnow().isoformat(), "aware": dt.now(datetime.timezone.utc).isoformat(),
    "today": date.today().isoformat(), "dt_today": dt.today().isoformat(),
    "gmtime": list(time.gmtime())[:6], "strftime": time.strftime("%Y-%m-%d"), "ctime": time.ctime(),
    "later": [type(Later.now()).__name__, Later.now().isoformat()],
    "uuid": str(uuid4()), "uuid1": str(uuid.uuid1()), "threaded": threaded,
    "versions": [uuid4().version, uuid.uuid1().version],
    "random": random.random(), "hash": hash("agentmem"), "set": list({"a", "b", "c", "d"}),
}
assert isinstance(dt.now(), dt) and type(dt.now()) is dt
assert pickle.loads(pickle.dumps(dt.now())).year == dt.now().year
sqlite3.connect(":memory:").execute("select ?", (str(date(2020, 1, 1)),)).fetchone()
start_s = time.monotonic()
time.sleep(0.05)
seen["slept"] = time.time() - seen["time"]
assert time.monotonic() - start_s >= 0.05
return Stored(note=json.dumps(seen))
"""


def look(worker: Worker, name: str = "u-1", at: str | None = None) -> dict[str, Any]:
    return dict(json.loads(worker.construct(unit(name=name, at=at)).note or ""))


def run(folder: Path, options: WorkerOptions | None = None) -> list[dict[str, Any]]:
    spec = probe(folder, LOOK, HEAD)
    with worker_of(spec, folder, options=options) as worker:
        worker.open(ENDPOINTS, LIMITS)
        first = look(worker, "u-1", "2023-05-08T13:56:00")
        second = look(worker, "u-2", "2023-05-09T08:00:00+02:00")
        third = look(worker, "u-3")
        past = look(worker, "u-4", "2020-01-01T00:00:00")
        again = look(worker, "u-4", "2020-01-01T00:00:00")
    return [first, second, third, past, again]


def test_the_clock_shows_the_time_of_the_unit(tmp_path: Path) -> None:
    first, second, third, past, _ = run(tmp_path)
    stamp_s = datetime(2023, 5, 8, 13, 56, tzinfo=UTC).timestamp()
    assert 0 <= first["time"] - stamp_s < 0.001
    assert first["time_ns"] // 10**9 == int(stamp_s)
    for key in ("now", "utcnow", "aware", "dt_today"):
        assert first[key].startswith("2023-05-08T13:56:00"), key
    assert first["today"] == first["strftime"] == "2023-05-08"
    assert first["gmtime"] == [2023, 5, 8, 13, 56, 0]
    assert first["ctime"] == "Mon May  8 13:56:00 2023"
    assert first["later"] == ["Later", first["later"][1]]
    assert first["later"][1].startswith("2023-05-08T13:56:00")
    assert 0.05 <= first["slept"] < 0.06
    assert second["aware"].startswith("2023-05-09T06:00:00")
    assert third["now"].startswith("2023-05-09T06:00:01")
    assert past["now"].startswith("2023-05-09T06:00:02")


def test_two_runs_see_the_same(tmp_path: Path) -> None:
    first, second = run(tmp_path / "one"), run(tmp_path / "two")
    assert first == second
    ids = [seen["uuid"] for seen in first]
    assert len(set(ids)) == len(ids)
    assert first[0]["versions"] == [4, 1]


def test_another_seed_gives_other_ids(tmp_path: Path) -> None:
    first = run(tmp_path / "one")
    second = run(tmp_path / "two", WorkerOptions(seed=1))
    assert {s["uuid"] for s in first}.isdisjoint(s["uuid"] for s in second)
    assert first[0]["hash"] == second[0]["hash"]


def test_a_restarted_worker_goes_on_as_if_uninterrupted(tmp_path: Path) -> None:
    whole = run(tmp_path)
    spec = probe(tmp_path, LOOK, HEAD)
    worker = worker_of(spec, tmp_path)
    with worker:
        worker.open(ENDPOINTS, LIMITS)
        look(worker, "u-1", "2023-05-08T13:56:00")
        look(worker, "u-2", "2023-05-09T08:00:00+02:00")
    options = WorkerOptions(clock_s=worker.clock_s - 1)  # the new process opens once more
    with worker_of(spec, tmp_path, options=options) as worker:
        worker.open(ENDPOINTS, LIMITS)
        assert look(worker, "u-3")["uuid"] == whole[2]["uuid"]


def test_native_mode_leaves_everything_alone(tmp_path: Path) -> None:
    first, *_ = run(tmp_path / "one", WorkerOptions(frozen=False))
    second, *_ = run(tmp_path / "two", WorkerOptions(frozen=False))
    assert abs(first["time"] - time.time()) < 300
    assert first["uuid"] != second["uuid"]
    assert first["time"] > CLOCK_START_S
