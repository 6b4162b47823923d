"""Tool calls: forced, free, streamed; told to models that know none."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.engine.api.calls import CallParser, Event, FreeOrCall, call_grammar
from agentmem.engine.api.fields import Fields
from agentmem.engine.api.tools import read_tools
from agentmem.engine.constraints import Grammars
from tests.engine.server.fakes import TEMPLATE, ByteTokenizer, FakeCore

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "add 1 and 2"}]
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "adds",
        "parameters": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "note": {"type": "string", "maxLength": 20}},
            "required": ["x"],
        },
    },
}
STOP = {"type": "function", "function": {"name": "stop"}}
TAGGED = TEMPLATE + "{% if tools %}{{ tools | tojson }}{% endif %}{# <tool_call> #}"
CALL = '{"name": "add", "arguments": {"x": 3, "note": "a } \\" ] b"}}'


def parse(pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    """Text and (name, arguments) that a parser makes of the pieces."""
    parser = CallParser(["add", "stop"])
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.finish()
    text, calls = "", []
    for event in events:
        if event.call is None:
            text += event.text
        elif event.name is not None:
            assert event.call == len(calls)
            calls.append((event.name, ""))
        else:
            calls[event.call] = (calls[event.call][0], calls[event.call][1] + event.text)
    return text, calls


ARGUMENTS = '{"x": 3, "note": "a } \\" ] b"}'


@pytest.mark.parametrize(
    ("answer", "text", "calls"),
    [
        (CALL, "", [("add", ARGUMENTS)]),
        (f"<tool_call>\n{CALL}\n</tool_call>", "", [("add", ARGUMENTS)]),
        (f"I add.\n<tool_call>\n{CALL}\n</tool_call>", "I add.", [("add", ARGUMENTS)]),
        (
            f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n"
            '{"name": "stop", "arguments": {}}\n</tool_call>',
            "",
            [("add", ARGUMENTS), ("stop", "{}")],
        ),
        ("```json\n" + CALL, "", [("add", ARGUMENTS)]),
        ("```\n" + CALL, "", [("add", ARGUMENTS)]),
        ('{"name":"stop","arguments":{}}', "", [("stop", "{}")]),
        ('{"name": "Bob", "age": 3}', '{"name": "Bob", "age": 3}', []),
        ('{"facts": []}', '{"facts": []}', []),
        ("a < b <tool", "a < b <tool", []),
        ("{", "{", []),
        ("", "", []),
        (f"Use {CALL}", f"Use {CALL}", []),
        ('{"name": "add", "argu', '{"name": "add", "argu', []),
        ('{\n  "name" : "add" ,\n  "arguments" : {"x": 1}\n}', "", [("add", '{"x": 1}')]),
        ('{"name": "add"}', '{"name": "add"}', []),
        ('<tool_call>{"name": "add"}', '<tool_call>{"name": "add"}', []),
    ],
)
def test_what_is_a_call_however_it_is_cut(answer, text, calls):
    assert parse([answer]) == (text, calls)
    assert parse(list(answer)) == (text, calls)
    for size in (2, 3, 7):
        assert parse([answer[i : i + size] for i in range(0, len(answer), size)]) == (text, calls)


@given(st.text(alphabet='<tol_cal>{}"name: add\n`', max_size=60), st.integers(1, 5))
def test_no_text_is_lost_or_cut_differently(answer, size):
    pieces = [answer[i : i + size] for i in range(0, len(answer), size)]
    text, calls = parse(pieces)
    assert (text, calls) == parse([answer])
    if "<tool_call>" not in answer:
        assert (text, calls) == (answer, [])


def ask(server: Any, **fields: Any) -> dict[str, Any]:
    body = {"messages": MESSAGES, "tools": [ADD, STOP], "max_tokens": 800, **fields}
    reply = server.post(CHAT, body)
    assert reply.status == 200, reply
    return reply.body["choices"][0]


@pytest.mark.parametrize("template", [TEMPLATE, TAGGED])
def test_a_required_call_is_one_of_the_tools(start, template):
    choice = ask(start(FakeCore(template=template)), tool_choice="required")
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    for call in choice["message"]["tool_calls"]:
        assert call["type"] == "function"
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "add":
            assert isinstance(arguments["x"], int)
        else:
            assert (call["function"]["name"], arguments) == ("stop", {})


@pytest.mark.parametrize("template", [TEMPLATE, TAGGED])
def test_a_named_call_is_that_tool_once(start, template):
    server = start(FakeCore(template=template))
    for name in ("add", "stop"):
        choice = ask(server, tool_choice={"type": "function", "function": {"name": name}})
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["name"] == name


def test_auto_leaves_words_alone(start):
    choice = ask(start(FakeCore(lambda request: "It is 3. {ok}")))
    assert choice["message"]["content"] == "It is 3. {ok}"
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "answer", [CALL, f"Sure.\n<tool_call>\n{CALL}\n</tool_call>", '```json\n{"name":"add",']
)
def test_auto_takes_a_call_and_keeps_it_valid(start, answer):
    choice = ask(start(FakeCore(lambda request: answer)))
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "add"
    assert isinstance(json.loads(call["function"]["arguments"])["x"], int)
    if answer.startswith("Sure"):
        assert choice["message"]["content"] == "Sure."
        assert json.loads(call["function"]["arguments"])["x"] == 3


def test_auto_mends_a_call_that_goes_wrong(start):
    wrong = '<tool_call>\n{"function": "add", "arguments": {"x": "three"}}\n</tool_call>'
    choice = ask(start(FakeCore(lambda request: wrong)))
    (call, *_) = choice["message"]["tool_calls"]
    assert call["function"]["name"] in ("add", "stop")
    json.loads(call["function"]["arguments"])


class Words(ByteTokenizer):
    """Bytes, and a few tokens that hold more than one."""

    extra = ('{"', '",\n', '"}', '":', "<tool_call>", '\n{"name', "}}\n")

    def __init__(self) -> None:
        super().__init__()
        self.vocabulary += [word.encode() for word in self.extra]
        self.vocab_size = len(self.vocabulary)

    def ids(self, *pieces: str) -> list[int]:
        return [
            token
            for piece in pieces
            for token in (
                [260 + self.extra.index(piece)] if piece in self.extra else piece.encode()
            )
        ]


@pytest.mark.parametrize(
    ("written", "called"),
    [
        (['{"', 'name": "add', '",\n'], True),
        (['{"', "name", '":', ' "add" ', ",\t"], True),
        (["<tool_call>", '\n{"name', '":', ' "'], True),
        (["Well.\n\n<tool_call>", "  {"], True),
        (['{"', 'name": "add', '"}'], False),
        (['{"', 'name": "subtract', '",\n'], False),
    ],
)
def test_tokens_wider_than_the_opening(written, called):
    words = Words()
    grammars = Grammars(words, words.vocab_size)
    use = read_tools(Fields({"tools": [ADD, STOP]}))
    bare, tagged = (call_grammar(grammars, use, tagged=t, opened=True) for t in (False, True))
    for seed in range(5):
        constraint = FreeOrCall(words, ["add", "stop"], bare, tagged)
        ids, rng = words.ids(*written), random.Random(seed)
        for token in ids:
            mask = constraint.allowed()
            assert mask is None or mask[token]
            assert not constraint.advance(token)
        assert (constraint.allowed() is not None) == called
        done = not called
        while not done:
            token = int(rng.choice(list(np.nonzero(constraint.allowed())[0])))
            ids.append(token)
            done = constraint.advance(token)
        assert constraint.error is None
        text, calls = parse([words.decode([token]) for token in ids])
        assert bool(calls) == called
        for name, arguments in calls:
            assert name in ("add", "stop")
            assert set(json.loads(arguments)) <= ({"x", "note"} if name == "add" else set())
        if not called:
            assert text == "".join(written)


def test_none_hides_the_tools(start):
    server = start(FakeCore(lambda request: CALL))
    choice = ask(server, tool_choice="none")
    assert choice["message"]["content"] == CALL
    assert "adds" not in server.core.tokenizer.decode(server.core.requests[0].prompt)


def test_tools_are_described_to_a_model_that_knows_none(start):
    server = start(FakeCore())
    ask(server)
    ask(server, messages=[{"role": "system", "content": "Be kind."}, *MESSAGES])
    first, second = (server.core.tokenizer.decode(r.prompt) for r in server.core.requests)
    assert "system\nYou can call these functions:" in first
    assert '{"name": "add", "description": "adds"' in first
    assert "system\nBe kind.\n\nYou can call these functions:" in second


def test_a_conversation_with_calls_is_rendered_for_such_a_model(start):
    server = start(FakeCore())
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "add", "arguments": '{"x": 3}'},
    }
    told = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "name": "add", "content": "6"},
    ]
    ask(server, messages=told)
    text = server.core.tokenizer.decode(server.core.requests[0].prompt, skip_control=False)
    assert '<turn>assistant\n{"name": "add", "arguments": {"x": 3}}</turn>' in text
    assert "<turn>user\nResult of add: 6</turn>" in text


def test_call_ids_repeat_with_the_prompt_and_differ_otherwise(start):
    server = start(FakeCore(lambda request: CALL))

    def call_id(**fields: Any) -> str:
        return ask(server, **fields)["message"]["tool_calls"][0]["id"]

    assert call_id() == call_id()
    assert call_id() != call_id(messages=[{"role": "user", "content": "other"}])


def test_a_streamed_call_adds_up_to_the_whole(start):
    server = start(FakeCore(lambda request: f"Sure.\n<tool_call>\n{CALL}\n</tool_call>"))
    whole = ask(server)
    body = {"messages": MESSAGES, "tools": [ADD, STOP], "max_tokens": 800}
    events, _ = server.stream(CHAT, body)
    text, calls = "", {}
    for event in events:
        delta = event["choices"][0]["delta"]
        text += delta.get("content") or ""
        for piece in delta.get("tool_calls", ()):
            call = calls.setdefault(piece["index"], {"id": piece.get("id"), "arguments": ""})
            call["arguments"] += piece["function"]["arguments"]
            call["name"] = piece["function"].get("name", call.get("name"))
    (expected,) = whole["message"]["tool_calls"]
    assert text == whole["message"]["content"] == "Sure."
    assert calls[0] == {"id": expected["id"], **expected["function"]}
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_call_cut_by_max_tokens_says_length(start):
    choice = ask(start(FakeCore(lambda request: CALL)), max_tokens=45)
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert ARGUMENTS.startswith(call["function"]["arguments"])


def test_the_real_client_gets_calls(start):
    client = start(FakeCore(lambda request: CALL)).client()
    reply = client.chat.completions.create(model="fake", messages=MESSAGES, tools=[ADD])
    (call,) = reply.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"x": 3, "note": 'a } " ] b'}
    with client.chat.completions.stream(model="fake", messages=MESSAGES, tools=[ADD]) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "add"
