"""OpenAI Responses (`/v1/responses`), the protocol of codex."""

import re

from reply import Request, arguments, flat, identifier, pieces, sse, usage
from script import Item, Tool

_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output")
# The form in which a tool that runs programs describes the functions that they may call.
_DECLARATION = re.compile(r"declare const tools: \{ (\w+)\(")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")


def read(body, _path):
    request = Request("responses", body.get("model", ""), stream=bool(body.get("stream")))
    request.effort = (body.get("reasoning") or {}).get("effort") or ""
    system = [body.get("instructions") or ""]
    entries = body.get("input") or []
    if isinstance(entries, str):
        entries = [{"type": "message", "role": "user", "content": entries}]
    request.messages = len(entries)
    for entry in entries:
        kind = entry.get("type", "message")
        if kind == "message":
            text = flat(entry.get("content"))
            if entry.get("role") in ("system", "developer"):
                system.append(text)
            else:
                request.items.append(Item("assistant" if entry.get("role") == "assistant" else "user", text))
        elif kind in _CALLS:
            request.items.append(Item("call", entry.get("name", kind)))
        elif kind in _RESULTS:
            request.items.append(Item("result", flat(entry.get("output", entry.get("tools")))))
        elif kind == "additional_tools":
            request.tools += _tools(entry.get("tools"))
    request.system = "\n".join(filter(None, system))
    request.tools += _tools(body.get("tools"))
    return request


def _tools(offered, namespace=""):
    tools = []
    for tool in offered or []:
        kind = tool.get("type")
        if kind == "namespace":
            tools += _tools(tool.get("tools"), tool.get("name", ""))
        else:
            nested = _DECLARATION.findall(tool.get("description") or "") if kind == "custom" else ()
            tools.append(Tool(tool.get("name", kind), namespace, kind == "custom", tuple(nested)))
    return tools


def _item(call, request):
    base = {"id": identifier("fc"), "call_id": identifier("call"), "name": call.name, "status": "completed"}
    if call.namespace:
        base["namespace"] = call.namespace
    freeform = isinstance(call.args, str) or any(tool.freeform and tool.name == call.name for tool in request.tools)
    if freeform:
        return {**base, "type": "custom_tool_call", "input": arguments(call)}
    if call.name == "tool_search":
        return {"type": "tool_search_call", "call_id": base["call_id"], "execution": "client", "status": "completed", "arguments": call.args}
    return {**base, "type": "function_call", "arguments": arguments(call)}


def _output(step, request):
    output = []
    if step.think:
        output.append({"id": identifier("rs"), "type": "reasoning", "summary": [{"type": "summary_text", "text": step.think}]})
    if step.text or not step.calls:
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        output.append({"id": identifier("msg"), "type": "message", "role": "assistant", "status": "completed", "content": content})
    return output + [_item(call, request) for call in step.calls]


def _response(name, status, request, step=None, output=()):
    response = {"id": name, "object": "response", "status": status, "model": request.model, "output": list(output)}
    if step is not None:
        numbers = usage(step)
        response["usage"] = {
            "input_tokens": numbers["input"],
            "input_tokens_details": {"cached_tokens": numbers["cached"]},
            "output_tokens": numbers["output"],
            "output_tokens_details": {"reasoning_tokens": numbers["reasoning"]},
            "total_tokens": numbers["input"] + numbers["output"],
        }
    return response


def whole(step, request):
    return _response(identifier("resp"), "completed", request, step, _output(step, request))


def opening(step, request):
    step.name = identifier("resp")
    yield _event("response.created", response=_response(step.name, "in_progress", request))


def stream(step, request):
    output = _output(step, request)
    for index, item in enumerate(output):
        if item["type"] == "message":
            empty = {**item, "status": "in_progress", "content": []}
            yield _event("response.output_item.added", output_index=index, item=empty)
            for piece in pieces(step.text):
                yield _event("response.output_text.delta", item_id=item["id"], output_index=index, content_index=0, delta=piece)
        elif item["type"] == "reasoning":
            yield _event("response.output_item.added", output_index=index, item={**item, "summary": []})
            for piece in pieces(step.think):
                yield _event("response.reasoning_summary_text.delta", item_id=item["id"], output_index=index, summary_index=0, delta=piece)
        else:
            yield _event("response.output_item.added", output_index=index, item={**item, "status": "in_progress"})
        yield _event("response.output_item.done", output_index=index, item=item)
    yield _event("response.completed", response=_response(step.name, "completed", request, step, output))


def _event(kind, **members):
    return sse({"type": kind, **members}, kind)


def failure(status, code, message):
    return {"error": {"message": message, "type": "server_error" if status >= 500 else "invalid_request_error", "param": None, "code": code or None}}
