"""Gemini (`/v1beta/models/MODEL:generateContent` and `:streamGenerateContent`), the protocol of gemini."""

import json
import re

from reply import Request, arguments, flat, pieces, sse, usage
from script import Item, Tool

_PATH = re.compile(r"/models/([^/:]+):(\w+)")


def read(body, path):
    model, method = _PATH.search(path).groups()
    request = Request("gemini", model, stream=method == "streamGenerateContent")
    generation = body.get("generationConfig") or {}
    thinking = generation.get("thinkingConfig") or {}
    request.effort = str(thinking.get("thinkingLevel") or thinking.get("thinkingBudget") or "")
    request.system = flat((body.get("systemInstruction") or {}).get("parts"))
    contents = body.get("contents") or []
    request.messages = len(contents)
    for content in contents:
        for part in content.get("parts") or []:
            if "functionResponse" in part:
                response = part["functionResponse"].get("response") or {}
                request.items.append(Item("result", flat(response.get("output", response.get("error", response)))))
            elif "functionCall" in part:
                request.items.append(Item("call", part["functionCall"].get("name", "")))
            elif part.get("text") and not part.get("thought"):
                request.items.append(Item("assistant" if content.get("role") == "model" else "user", part["text"]))
    for tool in body.get("tools") or []:
        for function in tool.get("functionDeclarations") or []:
            request.tools.append(Tool(function.get("name", "")))
        for built_in in set(tool) - {"functionDeclarations"}:
            request.tools.append(Tool(built_in))
    return request


def _call(call):
    value = call.args if isinstance(call.args, dict) else {"input": arguments(call)}
    return {"functionCall": {"name": call.name, "args": value}}


def _chunk(parts, request, step=None):
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
    chunk = {"candidates": [candidate], "modelVersion": request.model}
    if step is not None:
        candidate["finishReason"] = "STOP"
        numbers = usage(step)
        chunk["usageMetadata"] = {
            "promptTokenCount": numbers["input"],
            "cachedContentTokenCount": numbers["cached"],
            "candidatesTokenCount": numbers["output"] - numbers["reasoning"],
            "thoughtsTokenCount": numbers["reasoning"],
            "totalTokenCount": numbers["input"] + numbers["output"],
        }
    return chunk


def _thoughts(step):
    return [{"text": step.think, "thought": True}] if step.think else []


def whole(step, request):
    text = [{"text": step.text}] if step.text or not step.calls else []
    return _chunk(_thoughts(step) + text + [_call(call) for call in step.calls], request, step)


def opening(step, request):
    yield from (sse(_chunk([part], request)) for part in _thoughts(step))


def stream(step, request):
    texts = pieces(step.text) if step.text or not step.calls else []
    parts = [{"text": piece} for piece in texts] + [_call(call) for call in step.calls]
    for part in parts[:-1]:
        yield sse(_chunk([part], request))
    yield sse(_chunk(parts[-1:], request, step))


def count(body):
    return {"totalTokens": max(1, len(json.dumps(body)) // 4)}


_KINDS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}


def failure(status, code, message):
    return {"error": {"code": status, "message": message, "status": code or _KINDS.get(status, "INTERNAL")}}
