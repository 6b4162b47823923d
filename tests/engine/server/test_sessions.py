"""Session identity: which id wins, what is refused, where it arrives."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from agentmem.engine.sessions import (
    IdentityError,
    resolve_session,
    resolve_tenant,
    resolve_traffic,
)

BODY = {"session_id": "body-session"}
XARGS = {"vllm_xargs": {"session_id": "xargs-session"}}


@pytest.mark.parametrize(
    ("case", "body", "headers", "expected"),
    [
        ("A1", BODY, {"X-Session-ID": "header-session"}, "body-session"),
        ("A2", {}, {"X-Session-ID": "header-session"}, "header-session"),
        ("A3", {}, {"x-session-id": "low"}, "low"),
        ("A4", XARGS, {"X-Correlation-ID": "c"}, "xargs-session"),
        ("A5", {}, {"X-Correlation-ID": "c"}, None),
        ("A6", XARGS, {}, "xargs-session"),
        ("A7", {"vllm_xargs": {"session_id": "x"}}, {"X-Session-ID": "h"}, "h"),
        (
            "A9",
            {"session_id": "", "vllm_xargs": {"session_id": "x"}},
            {"X-Session-ID": ""},
            "x",
        ),
        ("A10", {"session_id": "", "vllm_xargs": {"session_id": 7}}, {}, None),
        ("A13", {**BODY, **XARGS}, {"X-Session-ID": "h"}, "body-session"),
        ("null body", {"session_id": None}, {"X-Session-ID": "h"}, "h"),
        ("blanks are kept", {"session_id": "  "}, {"X-Session-ID": "h"}, "  "),
        ("longest", {"session_id": "x" * 256}, {}, "x" * 256),
        ("no latin", {"session_id": "día-7"}, {}, "día-7"),
    ],
)
def test_precedence(case, body, headers, expected):
    assert resolve_session(body, headers) == expected
    assert resolve_session(body, CIMultiDict(headers)) == expected


@pytest.mark.parametrize(
    "value", [7, [], {"a": 1}, True, "x" * 257, "a\nb", "a\x00", "a\x7f", "a\x85", "\ud800"]
)
def test_refused_ids(value):
    with pytest.raises(IdentityError) as caught:
        resolve_session({"session_id": value}, {})
    assert caught.value.param == "session_id"


def test_bounds_hold_for_every_source():
    for body, headers in (
        ({}, {"X-Session-ID": "x" * 257}),
        ({"vllm_xargs": {"session_id": "\n"}}, {}),
    ):
        with pytest.raises(IdentityError):
            resolve_session(body, headers)
    with pytest.raises(IdentityError):
        resolve_session({"vllm_xargs": "no object"}, {})


def test_tenant_is_salt_or_a_digest_of_the_key():
    key = {"Authorization": "Bearer secret-key"}
    digest = resolve_tenant({}, key)
    assert digest is not None and digest.startswith("key-") and "secret" not in digest
    assert resolve_tenant({}, {"authorization": "bearer secret-key"}) == digest
    assert resolve_tenant({}, {"Authorization": "Bearer other"}) != digest
    assert resolve_tenant({"cache_salt": "mem0/0"}, key) == "mem0/0"
    assert resolve_tenant({"cache_salt": ""}, {}) is None
    assert resolve_tenant({}, {"Authorization": "Basic abc"}) is None
    with pytest.raises(IdentityError):
        resolve_tenant({"cache_salt": 5}, {})


def test_traffic_class():
    assert resolve_traffic({}, {}) == "interactive"
    assert resolve_traffic({}, {"x-agentmem-traffic": "background"}) == "background"
    body = {"traffic_class": "interactive"}
    assert resolve_traffic(body, {"X-Agentmem-Traffic": "background"}) == "interactive"
    with pytest.raises(IdentityError):
        resolve_traffic({"traffic_class": "urgent"}, {})
    for wrong in ([], 0, False, {}):
        with pytest.raises(IdentityError):
            resolve_traffic({"traffic_class": wrong}, {})


def test_a_header_that_is_no_text_is_told_from_one_with_control_characters():
    with pytest.raises(IdentityError, match="not UTF-8"):
        resolve_session({}, {"X-Session-ID": b"caf\xe9".decode("utf-8", "surrogateescape")})
    with pytest.raises(IdentityError, match="control characters"):
        resolve_session({"session_id": "a\x01"}, {})
