"""What a server serves: the models, their names, and the ledger of requests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args

from aiohttp import web

from agentmem.engine.api.errors import ApiError
from agentmem.engine.api.fields import Fields
from agentmem.engine.api.limits import Gate, Keys, Limits
from agentmem.engine.api.meter import Meter
from agentmem.engine.api.templates import ChatTemplate
from agentmem.engine.api.usage import Ledger
from agentmem.engine.constraints import Grammars
from agentmem.engine.request import TrafficClass
from agentmem.engine.sessions import bearer, header, key_tenant

if TYPE_CHECKING:
    from agentmem.engine.core import EngineCore
    from agentmem.engine.embed import Embedder
    from agentmem.engine.kv.transfer import Transferred

M = TypeVar("M", "ChatModel", "EmbedModel")


class ChatModel:
    """A generating model with its template and grammars."""

    def __init__(self, core: EngineCore) -> None:
        self.core, self.name, self.window = core, core.name, core.window
        self.tokenizer = core.tokenizer
        eos = self.tokenizer.eos_ids
        bos = self.tokenizer.bos_id
        self.template = ChatTemplate(
            self.tokenizer.chat_template,
            "" if bos is None else self.tokenizer.token_text(bos),
            self.tokenizer.token_text(eos[0]) if eos else "",
        )
        self.grammars = Grammars(self.tokenizer, core.vocab_size)
        self.words = self.tokenizer.vocabulary

    def facts(self) -> dict[str, Any]:
        """What every account of this model says about the engine."""
        return {"model": self.name, "mode": self.core.mode, "backend": self.core.backend}


class EmbedModel:
    """An embedding model and a thread for each traffic class.

    Within a class requests follow each other; between classes they take turns, batch by batch.
    """

    def __init__(self, embedder: Embedder, *, truncate: bool = True) -> None:
        self.embedder, self.name, self.window = embedder, embedder.name, embedder.window
        self.truncate = truncate
        self._pools = {
            name: ThreadPoolExecutor(1, thread_name_prefix=f"agentmem-embed-{name}")
            for name in get_args(TrafficClass)
        }
        self.requests = self.texts = 0

    def pool(self, traffic_class: TrafficClass) -> ThreadPoolExecutor:
        """The thread of a class."""
        return self._pools[traffic_class]

    def close(self) -> None:
        """Let go of the threads; what has not begun never will."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def facts(self) -> dict[str, Any]:
        """What every account of this model says about the engine."""
        return {"model": self.name, "mode": self.embedder.mode, "backend": self.embedder.backend}


class Mover(Protocol):
    """Writes and reads sessions as files: an engine that can."""

    def export_session(
        self, session_id: str, path: Path, *, tenant: str | None, move: bool
    ) -> Transferred:
        """Write one; DataError with the reason when it cannot be."""

    def import_session(
        self, path: Path, *, tenant: str | None, session_id: str | None
    ) -> Transferred:
        """Take one in; DataError with the reason, and nothing changed, when it does not fit."""

    def session_moved(self, session_id: str, tenant: str | None) -> bool:
        """Another engine owns the session now."""


@dataclass(slots=True)
class Served:
    """Everything handlers share."""

    chat: ChatModel | None
    embed: EmbedModel | None
    aliases: frozenset[str] = frozenset()
    """Further names under which both models answer; `*` is any name."""
    limits: Limits = field(default_factory=Limits)
    keys: Keys = field(default_factory=Keys)
    session_dir: Path | None = None
    """Where sessions may be exported to and imported from; None forbids both."""
    mover: Mover | None = None
    meter: Meter = field(default_factory=Meter)
    ledger: Ledger = field(default_factory=Ledger)
    gate: Gate = field(init=False)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.gate = Gate(self.limits.max_concurrency)

    def only_chat(self) -> ChatModel:
        """The generating model, where nothing names one; 404 without any."""
        return self.chat_model(Fields({}))

    def chat_model(self, body: Fields) -> ChatModel:
        """The generating model, when the request names it; 404 otherwise."""
        return self._pick(body, self.chat, "chat")

    def embed_model(self, body: Fields) -> EmbedModel:
        """The embedding model, when the request names it; 404 otherwise."""
        return self._pick(body, self.embed, "embedding")

    def next_id(self, prefix: str, headers: Mapping[str, str]) -> str:
        """The client's `X-Request-Id` when it can be used, else a number: no clock, no chance."""
        wanted = header(headers, "X-Request-Id") or ""
        if re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", wanted) and not self.ledger.knows(wanted):
            return wanted
        return f"{prefix}-{next(self._numbers):08d}"

    def owner(self, headers: Mapping[str, str]) -> str | None:
        """Who may ask for a request's account later: its key's digest, where keys are checked."""
        key = bearer(headers) if self.keys else None
        return None if key is None else key_tenant(key)

    def _pick(self, body: Fields, model: M | None, kind: str) -> M:
        name = body.text("model")
        if model is None:
            raise ApiError(404, f"this server serves no {kind} model", code="model_not_found")
        if name and name != model.name and not self.aliases & {name, "*"}:
            message = f"the {kind} model {name!r} does not exist; this server has {model.name!r}"
            raise ApiError(404, message, param="model", code="model_not_found")
        return model


SERVED = web.AppKey("served", Served)
