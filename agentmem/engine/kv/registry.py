"""Sessions: tags on cached blocks, and what is known of each."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

SessionKey = tuple[str | None, str]
"""Tenant and session id."""


@dataclass(frozen=True, slots=True)
class SessionStats:
    """A session as it stood at one moment."""

    session_id: str
    requests: int
    cached_tokens: int
    computed_tokens: int
    generated_tokens: int
    blocks_held: int
    bytes_held: int
    bytes_unique: int
    """Of those, bytes that no other session shares."""
    running: int
    created_unix_s: float
    last_use_unix_s: float

    @property
    def hit_rate(self) -> float | None:
        """Share of the prompt tokens that the cache served; None before the first request."""
        prompt = self.cached_tokens + self.computed_tokens
        return self.cached_tokens / prompt if prompt else None


@dataclass(slots=True, eq=False)
class Session:
    """One session's tags and counts; times are the manager's clock."""

    tenant: str | None
    session_id: str
    created_s: float
    last_use_s: float
    requests: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    bytes_held: int = 0
    bytes_unique: int = 0
    running: int = 0
    dropped: bool = False
    blocks: OrderedDict[tuple[int, int], None] = field(default_factory=OrderedDict)
    """(group, block) it used, the longest unused first."""

    def stats(self, unix_offset_s: float) -> SessionStats:
        """A snapshot; the offset turns the manager's clock into Unix time."""
        return SessionStats(
            self.session_id,
            self.requests,
            self.cached_tokens,
            self.computed_tokens,
            self.generated_tokens,
            len(self.blocks),
            self.bytes_held,
            self.bytes_unique,
            self.running,
            self.created_s + unix_offset_s,
            self.last_use_s + unix_offset_s,
        )


class Registry:
    """The sessions known, at most `limit`; the longest unused one that rests is forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[SessionKey, Session] = OrderedDict()
        self._tenants: dict[str | None, dict[str, Session]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, tenant: str | None, session_id: str) -> Session | None:
        """A session, if it is known."""
        return self._known.get((tenant, session_id))

    def of_tenant(self, tenant: str | None) -> list[Session]:
        """A tenant's sessions."""
        return list(self._tenants.get(tenant, {}).values())

    def use(self, tenant: str | None, session_id: str, now: float) -> Session:
        """The session, made when new, as the most recently used."""
        session = self._known.get((tenant, session_id))
        if session is None:
            session = Session(tenant, session_id, now, now)
            self._known[tenant, session_id] = session
            self._tenants.setdefault(tenant, {})[session_id] = session
        session.last_use_s = now
        self._known.move_to_end((tenant, session_id))
        return session

    def surplus(self) -> Session | None:
        """A session to forget because there are too many; the caller takes off its tags."""
        if len(self._known) <= self._limit:
            return None
        return next((s for s in self._known.values() if not s.running), None)

    def forget(self, session: Session) -> None:
        """Know it no more; its running requests go on, but leave nothing behind."""
        session.dropped = True
        del self._known[session.tenant, session.session_id]
        mine = self._tenants[session.tenant]
        del mine[session.session_id]
        if not mine:
            del self._tenants[session.tenant]
