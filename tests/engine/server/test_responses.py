"""POST /v1/responses: input forms, output items, named events, what is refused."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.engine.server.fakes import FakeCore
from tests.engine.server.test_chat import SCHEMA

PATH = "/v1/responses"
TOOL = {
    "type": "function",
    "name": "look_up",
    "description": "Looks up.",
    "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
}
CALL = '{"name": "look_up", "arguments": {"q": "x"}}'


def events_of(server, body):
    reply = server.post(PATH, {**body, "stream": True})
    assert reply.status == 200, reply
    found = []
    for block in reply.body.strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def test_an_answer_and_what_it_cost(start):
    server = start(FakeCore(lambda request: "four"))
    body = {"input": "2+2?", "instructions": "be brief", "max_output_tokens": 9, "store": True}
    reply = server.post(PATH, {**body, "metadata": {"a": "b"}})
    assert reply.status == 200
    told = reply.body
    assert (told["object"], told["status"], told["store"]) == ("response", "completed", False)
    (item,) = told["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"] == [
        {"type": "output_text", "text": "four", "annotations": [], "logprobs": []}
    ]
    assert (told["metadata"], told["instructions"]) == ({"a": "b"}, "be brief")
    usage = told["usage"]
    prompt = len(server.core.requests[0].prompt)
    assert (usage["input_tokens"], usage["output_tokens"]) == (prompt, 4)
    assert usage["input_tokens_details"]["cached_tokens"] == 1
    jsonschema.validate(usage["agentmem"], SCHEMA)
    request = server.core.requests[0]
    assert request.sampling.max_tokens == 9
    text = server.core.tokenizer.decode(request.prompt, skip_control=False)
    assert text == "<bos><turn>system\nbe brief</turn><turn>user\n2+2?</turn><turn>assistant\n"


def test_items_become_the_messages_of_a_chat(start):
    server = start(FakeCore())
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "message", "role": "assistant", "id": "m",
         "content": [{"type": "output_text", "text": "yes", "annotations": []}]},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": '{"q": "x"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
    ]  # fmt: skip
    assert server.post(PATH, {"input": items}).status == 200
    text = server.core.tokenizer.decode(server.core.requests[0].prompt, skip_control=False)
    call = '{"name": "look_up", "arguments": {"q": "x"}}'
    assert text == (
        f"<bos><turn>user\nhi</turn><turn>assistant\nyes\n{call}</turn>"
        "<turn>user\nResult of the tool: found</turn><turn>assistant\n"
    )


def test_a_cut_answer_is_incomplete(start):
    server = start(FakeCore())
    told = server.post(PATH, {"input": "x", "max_output_tokens": 2}).body
    assert (told["status"], told["incomplete_details"]) == (
        "incomplete", {"reason": "max_output_tokens"},
    )  # fmt: skip
    assert told["output"][0]["status"] == "incomplete"
    assert events_of(server, {"input": "x", "max_output_tokens": 2})[-1]["type"] == (
        "response.incomplete"
    )


def test_a_schema_and_log_probabilities(start):
    server = start(FakeCore(lambda request: '{"a": true}'))
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    text = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    told = server.post(PATH, {"input": "x", "text": text}).body
    assert json.loads(told["output"][0]["content"][0]["text"]) == {"a": True}
    include = ["message.output_text.logprobs"]
    server = start(FakeCore(lambda request: "hi"))
    body = {"input": "x", "include": include, "top_logprobs": 2}
    part = server.post(PATH, body).body["output"][0]["content"][0]
    assert [one["token"] for one in part["logprobs"]] == ["h", "i"]
    assert [one["logprob"] for one in part["logprobs"]] == [-0.25, -1.5]
    assert len(part["logprobs"][0]["top_logprobs"]) == 2
    deltas = [e for e in events_of(server, body) if e["type"] == "response.output_text.delta"]
    assert [e["logprobs"][0]["token"] for e in deltas] == ["h", "i"]


def test_a_function_call(start):
    server = start(FakeCore(lambda request: CALL))
    body = {"input": "x", "tools": [TOOL], "tool_choice": {"type": "function", "name": "look_up"}}
    told = server.post(PATH, body).body
    (item,) = told["output"]
    assert (item["type"], item["name"], item["status"]) == ("function_call", "look_up", "completed")
    assert set(json.loads(item["arguments"])) == {"q"}
    assert item["call_id"].startswith("call_")
    found = events_of(server, body)
    kinds = [event["type"].removeprefix("response.") for event in found]
    assert kinds[:3] == ["created", "in_progress", "output_item.added"]
    assert kinds[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]
    assert set(kinds[3:-3]) == {"function_call_arguments.delta"}
    pieces = [e["delta"] for e in found if e["type"].endswith("arguments.delta")]
    assert "".join(pieces) == item["arguments"] == found[-3]["arguments"]
    assert found[-1]["response"]["output"] == told["output"]


def test_words_before_a_call_are_an_item_of_their_own(start):
    server = start(FakeCore(lambda request: "Let me see. <tool_call>\n" + CALL + "\n</tool_call>"))
    told = server.post(PATH, {"input": "x", "tools": [TOOL]}).body
    assert [item["type"] for item in told["output"]] == ["message", "function_call"]
    assert "Let me see." in told["output"][0]["content"][0]["text"]


def test_events_of_a_text(start):
    server = start(FakeCore(lambda request: "ab"))
    found = events_of(server, {"input": "x"})
    assert [event["type"] for event in found] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.completed",
    ]  # fmt: skip
    assert found[0]["response"]["usage"] is None
    assert found[0]["response"]["output"] == []
    assert found[2]["item"]["content"] == []
    assert found[3]["part"]["text"] == ""
    assert found[6]["text"] == "ab"
    assert found[-1]["response"]["usage"]["output_tokens"] == 2
    jsonschema.validate(found[-1]["response"]["usage"]["agentmem"], SCHEMA)


def test_nothing_said_is_an_empty_message(start):
    told = start(FakeCore(lambda request: "")).post(PATH, {"input": "x"}).body
    assert told["output"][0]["content"][0]["text"] == ""


def test_a_failure_is_an_event(start):
    class Broken(FakeCore):
        def submit(self, request, on_delta, on_done):
            super().submit(request, on_delta, on_done)
            self.cancel(request.request_id)

    server = start(Broken(step_s=0.05))
    assert server.post(PATH, {"input": "x"}).status == 500
    last = events_of(server, {"input": "x"})[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["code"] == "aborted"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"tools": 5}, "tools"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"text": 7}, "text"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"include": 7}, "include"),
        ({"temperature": "x"}, "temperature"),
    ],
)
def test_refusals_name_the_field(start, fields, param):
    server = start(FakeCore())
    reply = server.post(PATH, {"input": "x", **fields})
    assert (reply.status, reply.body["error"]["param"]) == (400, param), reply
    assert server.core.requests == []


def test_the_real_client_responds_and_streams(start):
    server = start(FakeCore(lambda request: "yes"))
    client = server.client()
    reply = client.responses.create(model="fake", input="x")
    assert (reply.output_text, reply.status) == ("yes", "completed")
    assert reply.usage.output_tokens == 3
    with client.responses.stream(model="fake", input="x") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert final.output_text == "yes"
