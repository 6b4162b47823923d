"""What was recorded is served again, byte for byte, with no upstream there."""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentmem.errors import DataError, UsageError
from agentmem.gateway import Gateway, GatewayOptions, Upstream
from agentmem.gateway.record import Recording
from agentmem.gateway.replay import Replay
from agentmem.records import Call, Failure, Row
from tests.fake import FakeUpstream, Fault
from tests.gateway.conftest import Meter, chat_body, eventually

MakeMeter = Callable[..., Meter]
NOBODY = Upstream("http://127.0.0.1:9/v1")
SAME = (
    "endpoint", "status", "outcome", "attempt", "input_tokens", "output_tokens", "own_input_tokens",
    "own_output_tokens", "cache_read_tokens", "finish_reason", "request_hash", "response_hash",
    "seed", "stream", "unit", "response_bytes",
)  # fmt: skip


class Tape:
    """Records with one gateway and replays with another."""

    def __init__(self, make: MakeMeter, fake: FakeUpstream, path: Path) -> None:
        self.make, self.fake, self.path = make, fake, path
        self._recording: Recording | None = None

    def record(self, **options: Any) -> Meter:
        self._recording = Recording(self.path, {"id": "one"})
        return self.make(record=self._recording, **options)

    def replay(self, meter: Meter | None = None, **options: Any) -> tuple[Meter, Replay]:
        """Ends the recording and the fake; a gateway that has the file alone."""
        if meter is not None:
            meter.quiet()
        if self._recording is not None:
            self._recording.close()
        self.fake.stop()
        replay = Replay(self.path)
        return self.make(NOBODY, replay=replay, **options), replay


@pytest.fixture
def tape(make_meter: MakeMeter, fake: FakeUpstream, tmp_path: Path) -> Tape:
    return Tape(make_meter, fake, tmp_path / "calls.jsonl")


def told(calls: list[Call]) -> list[dict[str, Any]]:
    return [{name: getattr(call, name) for name in SAME} for call in calls]


def test_whole_replies_and_usage(tape: Tape) -> None:
    tape.fake.behaviour.cache = "agentmem"
    live = tape.record()
    texts = ["one", "two and three", "one", "🙂 \u2028 ünï"]
    first = [live.chat(text).content for text in texts]
    again, replay = tape.replay(live)
    assert [again.chat(text).content for text in texts] == first
    assert told(again.calls()) == told(live.calls())
    assert replay.calls == 4


def test_times_of_a_replay_are_marked(tape: Tape) -> None:
    tape.fake.behaviour.cache = "agentmem"
    live = tape.record()
    live.chat()
    again, _ = tape.replay(live)
    again.chat()
    then, now = live.call(), again.call()
    assert then.engine is not None and now.engine is not None
    assert then.ttft_s == then.engine["ttft_s"] and now.ttft_s is None
    assert now.engine["replayed"] is True
    assert not [name for name in now.engine if name.endswith("_s") or name == "request_id"]
    assert now.engine["recorded"]["prefill_s"] == then.engine["prefill_s"]
    assert now.engine["recorded"]["latency_s"] == pytest.approx(then.latency_s)
    assert now.engine["generated_tokens"] == then.engine["generated_tokens"]


@pytest.mark.parametrize("wanted", [True, False], ids=["usage asked", "usage stripped"])
def test_streams_have_the_same_chunks(tape: Tape, wanted: bool) -> None:
    tape.fake.behaviour.token_s = 0.005
    body = chat_body("count to ten", stream=True)
    body |= {"stream_options": {"include_usage": True}} if wanted else {}
    live = tape.record()
    first = live.post("chat/completions", body)
    again, _ = tape.replay(live)
    second = again.post("chat/completions", body)
    assert second.content == first.content and first.content.endswith(b"data: [DONE]\n\n")
    assert second.headers["content-type"] == first.headers["content-type"]
    assert told(again.calls()) == told(live.calls())
    [line] = tape.path.read_bytes().splitlines()[1:]
    assert len(json.loads(line)["sizes"]) > 3, "the chunks are kept apart"


@pytest.mark.parametrize("coding", ["float", "base64"])
def test_vectors_are_exact(tape: Tape, coding: str) -> None:
    body = {"model": "fake-embed", "input": ["a b", "c"], "encoding_format": coding}
    live = tape.record()
    first = live.post("embeddings", body).json()
    again, _ = tape.replay(live)
    second = again.post("embeddings", body).json()
    assert second == first
    vector = second["data"][0]["embedding"]
    if coding == "base64":
        vector = struct.unpack(f"<{tape.fake.behaviour.dims}f", base64.b64decode(vector))
    assert len(vector) == tape.fake.behaviour.dims
    assert told(again.calls()) == told(live.calls())


def test_errors_are_replies_too(tape: Tape) -> None:
    tape.fake.fail(Fault("status", status=429))
    tape.fake.fail(Fault("status", status=500))
    tape.fake.fail(Fault("malformed"))
    live = tape.record()
    retry = {"x-stainless-retry-count": "1"}

    def ask(meter: Meter) -> list[tuple[int, bytes]]:
        replies = [meter.chat("a"), meter.post("chat/completions", chat_body("a"), headers=retry)]
        replies += [meter.chat("b"), meter.chat("b")]
        return [(r.status_code, r.content) for r in replies]

    first = ask(live)
    again, _ = tape.replay(live)
    assert [status for status, _ in first] == [429, 500, 200, 200]
    assert ask(again) == first
    assert told(again.calls()) == told(live.calls())
    assert [c.outcome for c in again.calls()] == ["http_error"] * 3 + ["ok"]


@pytest.mark.parametrize("kind", ["reset", "truncate"])
@pytest.mark.parametrize("stream", [True, False])
def test_broken_replies_break_again(tape: Tape, kind: Any, stream: bool) -> None:
    tape.fake.fail(Fault(kind))
    live = tape.record()

    def ask(meter: Meter) -> str:
        try:
            return str(meter.chat("a", stream=stream).status_code)
        except httpx2.HTTPError as error:
            return type(error).__name__

    first = ask(live)
    again, _ = tape.replay(live)
    assert ask(again) == first != "200"
    assert told(again.calls()) == told(live.calls())
    assert again.gateway.transport_failures(again.scope) == 1


def test_a_client_that_left_leaves_again(tape: Tape) -> None:
    tape.fake.behaviour.token_s = 0.05

    def ask(meter: Meter) -> None:
        with httpx2.stream(
            "POST", f"{meter.url}/chat/completions", json=chat_body("go", stream=True), timeout=9
        ) as reply:
            next(reply.iter_bytes())

    live = tape.record()
    ask(live)
    assert eventually(lambda: live.gateway.in_flight(live.scope) == 0)
    again, _ = tape.replay(live)
    ask(again)
    assert live.call().outcome == again.call().outcome == "abandoned"


def test_an_unknown_request_is_a_clear_404(tape: Tape) -> None:
    live = tape.record()
    live.chat("known")
    tape.replay(live)
    rows: list[Row] = []
    gateway = Gateway(NOBODY, rows.append, options=GatewayOptions(replay=Replay(tape.path)))
    gateway.start()
    again = Meter(gateway, tape.fake, rows)
    again.open(again.scope)
    gateway.set_phase(again.scope, "construction", unit="u7")
    reply = again.chat("never asked")
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (404, "not_recorded")
    assert "chat request of sys.h1, u7" in error["message"]
    for _ in range(2):
        with pytest.raises(DataError, match=r"calls\.jsonl: no reply is recorded for this chat"):
            gateway.wait_quiet(again.scope, 0.0, 9.0)
    [call] = gateway.calls_of(again.scope)
    assert (call.outcome, call.status) == ("http_error", 404)
    assert "not_recorded" in (call.error or "")
    [row] = [row for row in rows if isinstance(row, Failure)]
    assert (row.scope, row.unit, row.kind) == ("sys.h1", "u7", "not_recorded")
    assert again.chat("known").status_code == 200
    assert again.chat("known").status_code == 404, "it was asked once in the recording, not twice"
    with pytest.raises(DataError):
        gateway.stop()


def test_two_systems_at_once_get_their_own_replies_in_order(tape: Tape) -> None:
    said = iter(range(100))
    tape.fake.behaviour.on_chat = lambda _: f"reply {next(said)}"

    def ask(meter: Meter, scope: str, into: dict[str, list[str]]) -> None:
        for unit in ("u0", "u1"):
            meter.gateway.set_phase(scope, "construction", unit=unit)
            for _ in range(3):
                reply = httpx2.post(f"{meter.urls[scope]}/chat/completions", json=chat_body("same"))
                into.setdefault(scope, []).append(reply.json()["choices"][0]["message"]["content"])

    def both(meter: Meter) -> dict[str, list[str]]:
        heard: dict[str, list[str]] = {}
        for system in ("a", "b"):
            meter.open(f"{system}.h1", system)
        threads = [threading.Thread(target=ask, args=(meter, f"{s}.h1", heard)) for s in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        meter.quiet("a.h1")
        meter.quiet("b.h1")
        return heard

    live = tape.record()
    first = both(live)
    assert len({text for texts in first.values() for text in texts}) == 12
    again, _ = tape.replay(live)
    assert both(again) == first


def test_a_call_that_falls_into_another_unit_is_still_known(tape: Tape) -> None:
    live = tape.record()
    live.gateway.set_phase(live.scope, "construction", unit="u0")
    first = live.chat("from a background thread").content
    again, _ = tape.replay(live)
    again.gateway.set_phase(again.scope, "construction", unit="u1")
    assert again.chat("from a background thread").content == first


def test_a_scope_opened_again_gets_its_replies_again(tape: Tape) -> None:
    live = tape.record()
    first = live.chat("a").content
    again, _ = tape.replay(live)
    for epoch in (1, 2):
        assert again.chat("a").content == first
        again.quiet()
        again.gateway.close_scope(again.scope)
        again.open(again.scope, epoch=epoch)


def test_the_last_of_two_tries_counts(tape: Tape) -> None:
    said = iter(range(9))
    tape.fake.behaviour.on_chat = lambda _: f"try {next(said)}"
    live = tape.record()
    live.chat("a")
    live.quiet()
    live.gateway.close_scope(live.scope)
    live.open(live.scope, epoch=1)
    second = live.chat("a").content
    again, replay = tape.replay(live)
    assert replay.calls == 1
    assert again.chat("a").content == second


def test_a_torn_tail_costs_one_line(tape: Tape) -> None:
    live = tape.record()
    for text in "ab":
        live.chat(text)
    _, whole = tape.replay(live)
    tape.path.write_bytes(tape.path.read_bytes()[:-20])
    torn = Replay(tape.path)
    assert (whole.calls, torn.calls) == (2, 1)
    assert torn.sha256 != whole.sha256
    Recording(tape.path, {"id": "one"}).close()
    mended = Replay(tape.path)
    assert (mended.calls, mended.sha256) == (1, torn.sha256)
    assert tape.path.read_bytes().endswith(b"\n")


def test_a_damaged_reply_is_named(tape: Tape) -> None:
    live = tape.record()
    live.chat("a")
    tape.replay(live)
    tape.path.write_bytes(tape.path.read_bytes().replace(b"assistant", b"assistent"))
    with pytest.raises(DataError, match="line 2 is damaged: the reply does not match"):
        Replay(tape.path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a recording"),
        ("{}\n", "not a recording"),
        ('{"agentmem_recording":1', "not a recording"),
        ('{"agentmem_recording":2,"id":"x"}\n', "recording format 2; this version reads 1"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(DataError, match=why):
        Replay(path)


def test_a_recording_has_one_writer_and_one_owner(tmp_path: Path) -> None:
    path = tmp_path / "file"
    first = Recording(path, {"id": "one"})
    with pytest.raises(UsageError, match="being written by another run"):
        Recording(path, {"id": "one"})
    first.close()
    Recording(path, {"id": "two"}).close()  # nothing was in it yet
    assert Replay(path).header["id"] == "two"
    path.write_bytes(path.read_bytes() + b"{}\n")
    with pytest.raises(UsageError, match="holds another recording"):
        Recording(path, {"id": "one"})


def test_requests_and_keys_stay_out_of_the_file(tape: Tape) -> None:
    live = tape.record(upstream=Upstream(tape.fake.url, api_key="sk-secret"))
    live.chat("my private words", max_tokens=1)
    tape.replay(live)
    kept = tape.path.read_text()
    assert "private words" not in kept and "sk-secret" not in kept
    assert oct(tape.path.stat().st_mode & 0o777) == "0o600"
