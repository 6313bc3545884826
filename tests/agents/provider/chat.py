"""OpenAI chat completions (`/v1/chat/completions`), the protocol of opencode and most other programs."""

from reply import Request, arguments, flat, identifier, pieces, sse, usage
from responses import failure  # noqa: F401  the errors of both OpenAI protocols look alike
from script import Item, Tool


def read(body, _path):
    request = Request("chat", body.get("model", ""), body.get("reasoning_effort") or "", bool(body.get("stream")))
    system = []
    messages = body.get("messages") or []
    request.messages = len(messages)
    for message in messages:
        role, text = message.get("role"), flat(message.get("content"))
        if role in ("system", "developer"):
            system.append(text)
        elif role == "tool":
            request.items.append(Item("result", text))
        elif role == "assistant":
            if text:
                request.items.append(Item("assistant", text))
            for call in message.get("tool_calls") or []:
                request.items.append(Item("call", (call.get("function") or {}).get("name", "")))
        else:
            request.items.append(Item("user", text))
    request.system = "\n".join(filter(None, system))
    for tool in body.get("tools") or []:
        function = tool.get("function") or {}
        request.tools.append(Tool(function.get("name", "")))
    return request


def _usage(step):
    numbers = usage(step)
    return {
        "prompt_tokens": numbers["input"],
        "completion_tokens": numbers["output"],
        "total_tokens": numbers["input"] + numbers["output"],
        "prompt_tokens_details": {"cached_tokens": numbers["cached"]},
        "completion_tokens_details": {"reasoning_tokens": numbers["reasoning"]},
    }


def _call(call):
    return {"id": identifier("call"), "type": "function", "function": {"name": call.name, "arguments": arguments(call)}}


def _finish(step):
    return "tool_calls" if step.calls else "stop"


def whole(step, request):
    message = {"role": "assistant", "content": step.text}
    if step.think:
        message["reasoning_content"] = step.think
    if step.calls:
        message["tool_calls"] = [_call(call) for call in step.calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish(step)}
    return {"id": identifier("chat"), "object": "chat.completion", "created": 0, "model": request.model, "choices": [choice], "usage": _usage(step)}


def opening(step, request):
    step.name = identifier("chat")
    yield _chunk(step, request, {"role": "assistant", "content": ""})


def stream(step, request):
    for piece in pieces(step.think) if step.think else []:
        yield _chunk(step, request, {"reasoning_content": piece})
    for piece in pieces(step.text) if step.text else []:
        yield _chunk(step, request, {"content": piece})
    for index, call in enumerate(step.calls):
        yield _chunk(step, request, {"tool_calls": [{"index": index, **_call(call)}]})
    yield _chunk(step, request, {}, _finish(step))
    yield sse({"id": step.name, "object": "chat.completion.chunk", "created": 0, "model": request.model, "choices": [], "usage": _usage(step)})
    yield sse("[DONE]")


def _chunk(step, request, delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return sse({"id": step.name, "object": "chat.completion.chunk", "created": 0, "model": request.model, "choices": [choice]})
