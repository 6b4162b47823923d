"""Who a request belongs to: session id, tenant and traffic class, from body and headers."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from typing import Any, get_args

from agentmem.engine.request import TrafficClass

SESSION_HEADER = "X-Session-ID"
TRAFFIC_HEADER = "X-Agentmem-Traffic"
SALT_HEADER = "X-Cache-Salt"
MAX_ID_CHARS = 256
"""Ids are copied into every record, so they are bounded."""


class IdentityError(ValueError):
    """A session id, tenant or traffic class that cannot be used; `param` names the field."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


def resolve_session(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """First non-empty of body `session_id`, header `X-Session-ID`, `vllm_xargs["session_id"]`.

    Conflicts are resolved, not rejected; blanks are kept; an empty string counts as absent.
    A body value that is no string, and an id that is too long or has control characters, raise
    IdentityError; an xargs value that is no string is ignored.
    """
    stated = body.get("session_id")
    if stated is not None and not isinstance(stated, str):
        raise IdentityError("session_id", "session_id must be a string")
    xargs = body.get("vllm_xargs")
    if xargs is not None and not isinstance(xargs, Mapping):
        raise IdentityError("vllm_xargs", "vllm_xargs must be an object")
    fallback = (xargs or {}).get("session_id")
    if not isinstance(fallback, str):
        fallback = None
    session = stated or header(headers, SESSION_HEADER) or fallback or None
    return check_session(session)


def resolve_header_session(headers: Mapping[str, str]) -> str | None:
    """The header's id alone: what token-level requests go by."""
    return check_session(header(headers, SESSION_HEADER))


def check_session(session_id: str | None) -> str | None:
    """The id when it can be used, None for an empty one; IdentityError otherwise."""
    return _checked("session_id", session_id) if session_id else None


def resolve_tenant(
    body: Mapping[str, Any], headers: Mapping[str, str], keyed: bool = False
) -> str | None:
    """Whose cache may serve the request: body `cache_salt`, else its header, else the API key.

    Of the key only a digest is kept. Where keys are checked (`keyed`), a salt divides the key's own
    cache: whoever guesses another's salt gains nothing.
    """
    salt = body.get("cache_salt")
    if salt is not None and not isinstance(salt, str):
        raise IdentityError("cache_salt", "cache_salt must be a string")
    salt = salt or header(headers, SALT_HEADER)
    key = bearer(headers)
    owner = None if key is None else key_tenant(key)
    if not salt:
        return owner
    salt = _checked("cache_salt", salt)
    if keyed and owner is not None:
        return f"{owner}/{salt}"
    # No salt may pass for a key's digest.
    return f"salt-{salt}" if salt.startswith("key-") else salt


def bearer(headers: Mapping[str, str]) -> str | None:
    """The API key of a request, or None."""
    scheme, _, key = (header(headers, "Authorization") or "").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None


def key_tenant(key: str) -> str:
    """The tenant that an API key stands for."""
    return "key-" + hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:16]


def resolve_traffic(body: Mapping[str, Any], headers: Mapping[str, str]) -> TrafficClass:
    """Body `traffic_class`, else header `X-Agentmem-Traffic`, else interactive."""
    stated = body.get("traffic_class")
    if stated is None or stated == "":
        stated = header(headers, TRAFFIC_HEADER) or "interactive"
    for known in get_args(TrafficClass):
        if stated == known:
            return known  # type: ignore[no-any-return]
    raise IdentityError("traffic_class", "traffic_class must be interactive or background")


def header(headers: Mapping[str, str], name: str) -> str | None:
    """A header's value whatever the case of its name."""
    if (value := headers.get(name)) is not None:
        return value
    wanted = name.lower()
    return next((v for k, v in headers.items() if k.lower() == wanted), None)


def _checked(param: str, value: str) -> str:
    if len(value) > MAX_ID_CHARS:
        raise IdentityError(param, f"{param} is longer than {MAX_ID_CHARS} characters")
    # Cs: half of a surrogate pair, which no encoder takes; in headers, a byte that is not UTF-8.
    if any(unicodedata.category(c) == "Cs" for c in value):
        raise IdentityError(param, f"{param} is not UTF-8")
    if any(unicodedata.category(c) == "Cc" for c in value):
        raise IdentityError(param, f"{param} contains control characters")
    return value
