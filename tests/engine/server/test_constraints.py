"""Structured output: whatever the model prefers, the answer is valid, and it ends."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest

from agentmem.engine.api.bounds import DEFAULT, any_object, bounded
from agentmem.engine.constraints import GrammarError, Grammars
from tests.engine.server.fakes import CONTROL, EOS, VOCAB, ByteTokenizer, FakeCore

GRAMMARS = Grammars(ByteTokenizer(), VOCAB)
FACTS = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}}},
    "required": ["facts"],
}
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object"},
    {},
    FACTS,
    {"type": "number"},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "integer", "minimum": 1},
    {"type": "integer", "multipleOf": 5},
    {"type": ["string", "null"]},
    {"type": ["integer", "number", "string"]},
    {"anyOf": [{"type": "string"}, {"type": "number"}]},
    {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    {"enum": ["a", 1, None]},
    {"const": {"a": 1}},
    {"type": "object", "required": ["x"]},
    {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
    {"type": "array"},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 20},
    {"type": "array", "prefixItems": [{"type": "string"}], "minItems": 1},
    {"type": "string", "format": "password"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "pattern": "^a+$"},
    {"type": "string", "minLength": 300},
    {
        "$defs": {"fact": {"type": "object", "properties": {"text": {"type": "string"}},
                           "required": ["text"]}},
        "type": "object",
        "properties": {"memory": {"type": "array", "items": {"$ref": "#/$defs/fact"}}},
        "required": ["memory"],
    },
    {
        "definitions": {"Z": {"type": "object", "properties": {"a": {"type": "string"}},
                              "required": ["a"]}},
        "allOf": [{"$ref": "#/definitions/Z"}],
    },
]  # fmt: skip
GREED = {
    "space": ord(" "),
    "newline": 10,
    "digit": ord("9"),
    "letter": ord("a"),
    "bracket": ord("["),
}


def walk(constraint: Any, seed: int, greedy: int | None, limit: int = 100_000) -> bytes:
    """A model that likes one token above all and is otherwise random."""
    rng, out = random.Random(seed), bytearray()
    for _ in range(limit):
        mask = constraint.allowed()
        token = int(rng.choice(list(np.nonzero(mask)[0])))
        if greedy is not None and mask[greedy]:
            token = greedy
        if token in ByteTokenizer.eos_ids:
            return bytes(out)
        assert token < 256, "control and padding ids are never allowed"
        out.append(token)
        if constraint.advance(token):
            assert constraint.error is None
            return bytes(out)
    raise AssertionError(f"no end: {bytes(out[:200])!r}")


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: json.dumps(s)[:50])
def test_every_model_ends_in_valid_json(schema):
    grammar = GRAMMARS.json_schema(bounded(schema))
    for seed, greedy in enumerate([None, None, None, *GREED.values()]):
        jsonschema.validate(json.loads(walk(grammar.start(), seed, greedy)), schema)


def test_the_schema_given_is_not_changed():
    before = json.dumps(SCHEMAS)
    for schema in SCHEMAS:
        bounded(schema)
    assert json.dumps(SCHEMAS) == before


def test_default_bounds():
    facts = bounded(FACTS)["properties"]["facts"]
    assert facts["maxItems"] == DEFAULT.items
    assert facts["items"]["maxLength"] == DEFAULT.string
    stated = {"type": "array", "maxItems": 99, "items": {"type": "string", "maxLength": 999}}
    kept = bounded(stated)
    assert (kept["maxItems"], kept["items"]["maxLength"]) == (99, 999)
    text = walk(GRAMMARS.json_schema(bounded({"type": "string"})).start(), 0, GREED["letter"])
    assert text == b'"' + b"a" * DEFAULT.string + b'"'


def test_control_tokens_are_no_text_inside_a_string():
    constraint = GRAMMARS.json_schema(any_object()).start()
    assert constraint.feed(b'{"key": "val')
    mask = constraint.allowed()
    assert mask is not None and mask.shape == (VOCAB,)
    assert mask[ord("x")] and mask[ord("<")]
    assert not mask[list(CONTROL)].any()
    assert not mask[260:].any(), "ids past the tokenizer"


def test_the_end_token_is_allowed_where_the_text_may_end():
    constraint = GRAMMARS.json_schema(bounded({"type": "integer"})).start()
    assert not constraint.allowed()[EOS]
    assert not constraint.advance(ord("7"))
    assert constraint.allowed()[EOS]
    assert constraint.advance(EOS)


def test_choices_do_not_share_their_place():
    grammar = GRAMMARS.json_schema(bounded(FACTS))
    first, second = grammar.start(), grammar.start()
    first.advance(ord("{"))
    assert second.allowed()[ord("{")]
    assert not first.allowed()[ord("{")]


@pytest.mark.parametrize(
    "schema", [{"type": "foo"}, {"$ref": "http://127.0.0.1/x"}, {"$ref": "#/nix"}]
)
def test_a_schema_that_cannot_be_carried_out(schema):
    with pytest.raises(GrammarError):
        GRAMMARS.json_schema(bounded(schema))


@pytest.mark.parametrize(
    ("stated", "check"),
    [
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"name": "f", "schema": FACTS}}, FACTS),
        (
            {"type": "json_schema", "json_schema": {"name": "f", "schema": FACTS, "strict": True}},
            FACTS,
        ),
    ],
)
def test_response_format_over_http(start, stated, check):
    server = start(FakeCore(lambda request: "I would rather talk"))
    body = {"messages": [{"role": "user", "content": "x"}], "response_format": stated}
    reply = server.post("/v1/chat/completions", {**body, "max_tokens": 3000})
    choice = reply.body["choices"][0]
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), check)
    prompt = {"prompt": "x", "response_format": stated, "max_tokens": 3000}
    text = server.post("/v1/completions", prompt).body["choices"][0]["text"]
    jsonschema.validate(json.loads(text), check)


def test_a_grammar_cut_by_max_tokens_says_length(start):
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": FACTS}},
        "max_tokens": 5,
    }
    choice = start(FakeCore()).post("/v1/chat/completions", body).body["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == '{"fac'
