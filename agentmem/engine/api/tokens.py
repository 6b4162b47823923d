"""POST /tokenize and /detokenize."""

from __future__ import annotations

from aiohttp import web

from agentmem.engine.api.chat import render
from agentmem.engine.api.errors import bad_request
from agentmem.engine.api.fields import check_ids, is_ids, read_fields
from agentmem.engine.api.messages import read_messages
from agentmem.engine.api.state import SERVED
from agentmem.engine.api.tools import read_tools


async def tokenize(request: web.Request) -> web.Response:
    """Token ids of `prompt` or of `messages` as the model would get them."""
    body = await read_fields(request)
    model = request.app[SERVED].chat_model(body)
    prompt = body.text("prompt")
    if prompt is None:
        text = render(model, read_messages(body), read_tools(body), body)
        ids = model.tokenizer.encode(text)
    else:
        ids = model.tokenizer.encode(prompt, body.flag("add_special_tokens", True))
    told = {"count": len(ids), "max_model_len": model.window, "tokens": ids}
    return web.json_response(told)


async def detokenize(request: web.Request) -> web.Response:
    """Text of `tokens`."""
    body = await read_fields(request)
    model = request.app[SERVED].chat_model(body)
    ids = body.get("tokens")
    if not is_ids(ids):
        raise bad_request("tokens must be a list of token ids", "tokens")
    ids = check_ids(ids, model.core.vocab_size, "tokens")
    return web.json_response({"prompt": model.tokenizer.decode(ids, skip_control=False)})
