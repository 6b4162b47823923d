"""A recording run through an engine: the recorded answers, at this engine's own cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentmem import profile
from agentmem.analysis.checks import check_run
from agentmem.analysis.equal import differences
from agentmem.analysis.load import Run, load
from agentmem.engine.core import EngineCore
from agentmem.engine.embed import Embedder
from agentmem.errors import DataError
from agentmem.profile import Profile
from agentmem.runner.progress import Silent
from agentmem.runner.run import RunOptions, run
from tests.engine.server.conftest import Server
from tests.fake import FakeUpstream
from tests.runner import toys
from tests.runner.conftest import WORKLOAD, profile_data

SHORT = WORKLOAD | {"sessions": 2, "questions": 2, "history_tokens": 120}


def spec(url: str, chat: str, embedder: str, *systems: str) -> Profile:
    data = profile_data(url, list(systems), answer={"max_tokens": 12})
    data["engine"] |= {"model": chat, "embedder": embedder, "start_timeout_s": 120.0}
    return profile.parse(data | {"workload": SHORT})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The engine itself with tiny models, in this process."""
    folder = tmp_path_factory.mktemp("models")
    core = EngineCore.load(toys.chat_model(folder / "chat"), mode="fp32", threads=1)
    made = Server(core, Embedder.load(toys.embedder(folder / "embed"), threads=1))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def taped(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording of the engine's own replies, and the run that made it."""
    folder = tmp_path_factory.mktemp("taped")
    options = RunOptions(folder / "live", record=folder / "replies")
    assert run(ours(server), options, Silent()).status == "complete"
    return folder


def ours(server: Server) -> Profile:
    return spec(f"{server.url}/v1", "chat", "embed", "bm25", "embedrag")


def forced(asked: Profile, folder: Path, out: str = "forced") -> Run:
    options = RunOptions(folder / out, replay=folder / "replies", replay_mode="through-engine")
    assert run(asked, options, Silent()).status == "complete"
    return load(folder / out)


def test_answers_and_tokens_are_the_recorded_ones(server: Server, taped: Path) -> None:
    live, again = load(taped / "live"), forced(ours(server), taped)
    assert differences(live, again) == []
    assert not [c for c in check_run(again) if c.ok is False]
    chats = again.calls[again.calls["endpoint"] == "chat"]
    assert len(chats) and (chats["engine_prefill_s"] > 0).all()
    assert (chats["engine_decode_s"] > 0).all() and chats["ttft_s"].notna().all()
    embeds = again.calls[again.calls["endpoint"] == "embedding"]
    assert len(embeds) and (embeds["engine_prefill_s"] > 0).all()
    assert all(e["forced"] and e["recorded"]["latency_s"] > 0 for e in chats["engine"])
    assert all(e["drafted_tokens"] == 0 for e in chats["engine"])


def test_the_manifest_says_how_it_was_made(server: Server, taped: Path) -> None:
    forced(ours(server), taped, "said")
    manifest = json.loads((taped / "said" / "manifest.json").read_text())
    assert manifest["replay"]["mode"] == "through-engine"
    assert manifest["engine"]["kind"] == "foreign" and manifest["engine"]["ours"] is True
    assert manifest["notes"][0].startswith("Replayed through an engine: every answer comes from")
    live = json.loads((taped / "live" / "manifest.json").read_text())
    assert manifest["identity"] != live["identity"]


def test_another_servers_replies_cost_what_they_cost_here(
    server: Server, fake: FakeUpstream, tmp_path: Path
) -> None:
    """The recorded model, its window and its vector width are what the systems hear of."""
    strong = spec(fake.url, "fake-chat", "fake-embed", "bm25", "embedrag")
    options = RunOptions(tmp_path / "live", record=tmp_path / "replies")
    assert run(strong, options, Silent()).status == "complete"
    fake.stop()
    live, again = load(tmp_path / "live"), forced(ours(server), tmp_path)
    assert live.queries["answer"].tolist() == again.queries["answer"].tolist()
    assert live.calls["response_hash"].tolist() == again.calls["response_hash"].tolist()
    chats = again.calls[again.calls["endpoint"] == "chat"]
    # a token is a byte here, and in a model's words there was no end mark to force
    wanted = [len(a.encode()) for a in again.queries["answer"]]
    assert sorted(chats["output_tokens"].tolist()) == sorted(wanted)
    assert set(chats["model"]) == {"fake-chat"}


def test_a_request_the_recording_does_not_know(server: Server, taped: Path) -> None:
    other = profile.parse(ours(server).as_dict() | {"run": {"seed": 8, "quiet_s": 0.02}})
    options = RunOptions(taped / "o", replay=taped / "replies", replay_mode="through-engine")
    with pytest.raises(DataError, match="no reply is recorded for this chat"):
        run(other, options, Silent())
    assert load(taped / "o").failures["kind"].tolist().count("not_recorded") == 1


def test_a_reply_that_does_not_fit_the_engine(server: Server, taped: Path, tmp_path: Path) -> None:
    """A window smaller than the recorded model's ends the run in one clear line."""
    core = EngineCore.load(toys.chat_model(tmp_path / "chat"), mode="fp32", threads=1, window=64)
    small = Server(core, server.embedder)
    try:
        options = RunOptions(taped / "s", replay=taped / "replies", replay_mode="through-engine")
        with pytest.raises(
            DataError, match=r"cannot produce the recorded reply of .* window is 64"
        ):
            run(ours(small), options, Silent())
    finally:
        small.stop()


@pytest.mark.slow
def test_the_local_engine_as_a_process(tmp_path: Path) -> None:
    """Record with one mode, force in another: equal answers, equal tokens, own times."""
    chat, embed = toys.chat_model(tmp_path / "c"), toys.embedder(tmp_path / "e")
    asked = spec("local", str(chat), str(embed), "bm25", "embedrag")
    options = RunOptions(tmp_path / "live", record=tmp_path / "replies")
    assert run(asked, options, Silent()).status == "complete"
    data: dict[str, Any] = asked.as_dict()
    data["engine"] |= {"mode": "int8", "reuse": False}
    live, again = load(tmp_path / "live"), forced(profile.parse(data), tmp_path)
    assert differences(live, again) == []
    assert again.manifest["engine"]["kind"] == "local"
    assert again.manifest["engine"]["mode"] == "int8"
    assert again.calls["cache_read_tokens"].sum() == 0 < live.calls["cache_read_tokens"].sum()
