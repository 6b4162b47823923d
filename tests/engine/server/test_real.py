"""The server around the real engine and the small default models, when they have been fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator

import jsonschema
import numpy as np
import pytest

from agentmem.errors import DataError
from agentmem.modelfiles.fetch import resolve
from tests.engine.server.conftest import Server
from tests.engine.server.test_chat import SCHEMA
from tests.engine.server.test_constraints import FACTS

pytestmark = pytest.mark.slow
CHAT = "/v1/chat/completions"
ASK = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def real() -> Iterator[Server]:
    from agentmem.engine.core import EngineCore
    from agentmem.engine.embed import Embedder

    try:
        model, embedder = resolve("smollm2-135m"), resolve("minilm-l6")
    except DataError as err:
        pytest.skip(str(err))
    server = Server(EngineCore.load(model), Embedder.load(embedder))
    yield server
    server.stop()


def test_it_answers_and_reuses_the_session(real):
    body = {"messages": ASK, "temperature": 0, "max_tokens": 12, "session_id": "real"}
    first, second = real.post(CHAT, body).body, real.post(CHAT, body).body
    assert "Paris" in first["choices"][0]["message"]["content"]
    assert first["choices"] == second["choices"]
    for reply in (first, second):
        jsonschema.validate(reply["usage"]["agentmem"], SCHEMA)
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 20
    assert first["usage"]["prompt_tokens"] == second["usage"]["prompt_tokens"]


def test_a_stream_is_the_same_text(real):
    client = real.client()
    options = {"model": "smollm2-135m", "messages": ASK, "temperature": 0, "max_tokens": 12}
    whole = client.chat.completions.create(**options).choices[0].message.content
    stream = client.chat.completions.create(**options, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in stream) == whole


def test_a_schema_holds_and_ends(real):
    messages = [{"role": "user", "content": "List facts: Anna lives in Rome with her dog Rex."}]
    stated = {"type": "json_schema", "json_schema": {"name": "f", "schema": FACTS}}
    body = {"messages": messages, "temperature": 0, "max_tokens": 1500, "response_format": stated}
    choice = real.post(CHAT, body).body["choices"][0]
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), FACTS)


def test_a_required_tool_is_called(real):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": schema}}
    reply = real.client().chat.completions.create(
        model="smollm2-135m", messages=ASK, tools=[tool], tool_choice="required", temperature=0
    )
    (call,) = reply.choices[0].message.tool_calls
    jsonschema.validate(json.loads(call.function.arguments), schema)


def test_embeddings_are_near_what_they_mean(real):
    texts = ["A dog runs in the park.", "A puppy is running outside.", "Interest rates rose."]
    rows = real.client().embeddings.create(model="minilm-l6", input=texts).data
    a, b, c = (np.array(row.embedding) for row in rows)
    assert a @ b > a @ c + 0.2
    assert np.linalg.norm(a) == pytest.approx(1, abs=1e-5)
