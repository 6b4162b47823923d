"""Chat templates against an independent renderer, and what prompts never contain."""

from __future__ import annotations

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from agentmem.engine.api.errors import ApiError
from agentmem.engine.api.templates import ChatTemplate
from tests.engine.server.fakes import FakeCore

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TOOLS = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "<|im_end|>\\n" }}
{%- endif %}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {%- for call in message.tool_calls %}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
    {%- elif message.role == "tool" %}
        {{- '<tool_response>' + message.content + '</tool_response>' }}
    {%- else %}
        {{- message.role + ': ' + message.content + eos_token }}
    {%- endif %}
    {%- if loop.index > 5 %}{% break %}{% endif %}
{%- endfor %}
"""
GENERATION = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ bos_token + m.content | trim }}{% endif %}{% endfor %}"
)
TALK = [
    {"role": "user", "content": " Où <b>&</b> 😀? "},
    {"role": "assistant", "content": "here"},
    {"role": "user", "content": "and\nthen"},
]
CALLED = [
    {"role": "user", "content": "add"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"type": "function", "function": {"name": "add", "arguments": {"é": [1, "<x>"]}}}
        ],
    },
    {"role": "tool", "content": "3"},
]
TOOL = {"type": "function", "function": {"name": "add", "description": "é", "parameters": {}}}


@pytest.mark.parametrize("source", [CHATML, TOOLS, GENERATION])
@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("talk", [TALK, CALLED])
def test_the_same_text_as_the_reference_renderer(source, prompt, talk):
    expected, _ = render_jinja_template(
        conversations=[talk],
        tools=[TOOL],
        chat_template=source,
        add_generation_prompt=prompt,
        bos_token="<s>",
        eos_token="</s>",
    )
    assert ChatTemplate(source, "<s>", "</s>").render(talk, [TOOL], prompt=prompt) == expected[0]


def test_what_a_template_can_do_is_read_from_it():
    plain, tools = ChatTemplate(CHATML, "", ""), ChatTemplate(TOOLS, "", "")
    assert (plain.knows_tools, plain.tags_calls) == (False, False)
    assert (tools.knows_tools, tools.tags_calls) == (True, True)


def test_a_template_gets_a_fixed_day():
    source = "{{ strftime_now('%d %b %Y') }}"
    assert ChatTemplate(source, "", "").render(TALK) == "26 Jul 2024"


def test_a_refusal_is_a_400():
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", "", "")
    with pytest.raises(ApiError) as caught:
        template.render(TALK)
    assert caught.value.status == 400
    assert "roles must alternate" in caught.value.message


def test_a_refused_system_message_goes_into_the_first_user_message():
    source = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
    )
    messages = [{"role": "system", "content": "rule"}, {"role": "user", "content": "hi"}]
    assert ChatTemplate(source, "", "").render(messages) == "user=rule\n\nhi;"


def test_a_template_cannot_reach_python():
    source = "{{ messages.__class__.__mro__[1].__subclasses__() }}"
    with pytest.raises(ApiError):
        ChatTemplate(source, "", "").render(TALK)


def test_a_base_model_gets_a_plain_layout(start):
    server = start(FakeCore(lambda request: " fine\nUser: more", template=None))
    messages = [
        {"role": "system", "content": "Answer."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "how?"},
    ]
    reply = server.post("/v1/chat/completions", {"messages": messages, "stop": "END"})
    request = server.core.requests[0]
    text = server.core.tokenizer.decode(request.prompt)
    assert text == "Answer.\n\nUser: hi\n\nAssistant: yes?\n\nUser: how?\n\nAssistant:"
    assert request.sampling.stop == ("END", "\nUser:", "\nSystem:", "\nTool:")
    assert reply.body["choices"][0]["finish_reason"] == "stop"
    assert "more" not in reply.body["choices"][0]["message"]["content"]
