"""Anthropic messages (`/v1/messages`), the protocol of claude."""

import json

from reply import Request, arguments, flat, identifier, pieces, sse, usage
from script import Item, Tool


def read(body, _path):
    request = Request("messages", body.get("model", ""), stream=bool(body.get("stream")))
    request.effort = (body.get("output_config") or {}).get("effort") or ""
    thinking = body.get("thinking") or {}
    if thinking.get("type") not in (None, "disabled"):
        request.effort = " ".join(filter(None, (request.effort, "thinking", thinking["type"])))
    messages = body.get("messages") or []
    request.messages = len(messages)
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        # A message of the role system inside the conversation contains input of the user during a turn.
        side = "assistant" if message.get("role") == "assistant" else "user"
        for part in content or []:
            kind = part.get("type")
            if kind == "text":
                request.items.append(Item(side, part.get("text", "")))
            elif kind == "tool_use":
                request.items.append(Item("call", part.get("name", "")))
            elif kind == "tool_result":
                request.items.append(Item("result", flat(part.get("content"))))
    request.system = flat(body.get("system"))
    for tool in body.get("tools") or []:
        request.tools.append(Tool(tool.get("name", tool.get("type", ""))))
    return request


def _content(step):
    content = []
    if step.think:
        content.append({"type": "thinking", "thinking": step.think, "signature": "c2lnbmF0dXJl"})
    if step.text or not step.calls:
        content.append({"type": "text", "text": step.text})
    for call in step.calls:
        value = call.args if isinstance(call.args, dict) else {"input": arguments(call)}
        content.append({"type": "tool_use", "id": identifier("toolu"), "name": call.name, "input": value})
    return content


def _usage(step):
    numbers = usage(step)
    return {
        "input_tokens": numbers["input"] - numbers["cached"],
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": numbers["cached"],
        "output_tokens": numbers["output"],
    }


def _message(name, request, step, content, stop):
    return {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _usage(step),
    }


def _stop(step):
    return "tool_use" if step.calls else "end_turn"


def whole(step, request):
    return _message(identifier("msg"), request, step, _content(step), _stop(step))


def opening(step, request):
    message = _message(identifier("msg"), request, step, [], None)
    message["usage"]["output_tokens"] = 1
    yield _event("message_start", message=message)
    yield _event("ping")


def stream(step, request):
    for index, block in enumerate(_content(step)):
        kind = block["type"]
        if kind == "text":
            start, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(step.text)]
        elif kind == "thinking":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(step.think)]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        else:
            start = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(json.dumps(block["input"]))]
        yield _event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta={"stop_reason": _stop(step), "stop_sequence": None}, usage=_usage(step))
    yield _event("message_stop")


def _event(kind, **members):
    return sse({"type": kind, **members}, kind)


_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def failure(status, code, message):
    return {"type": "error", "error": {"type": code or _KINDS.get(status, "api_error"), "message": message}}
