"""The common parts of the protocols: a parsed request, and numbers and texts of a reply."""

import itertools
import json
from dataclasses import dataclass, field

_NUMBERS = itertools.count(1)


@dataclass
class Request:
    """A request of a program, independent of the protocol."""

    protocol: str
    model: str = ""
    effort: str = ""
    stream: bool = False
    system: str = ""
    messages: int = 0
    items: list = field(default_factory=list)
    tools: list = field(default_factory=list)


def identifier(prefix):
    return f"{prefix}_{next(_NUMBERS):06d}"


def usage(step):
    """Returns the numbers of input, cached, output and reasoning tokens. They depend only on the step."""
    numbers = {"input": 1000 + 100 * max(step.number, 0), "cached": 500, "output": 20, "reasoning": 5}
    return {**numbers, **step.usage}


def pieces(text, size=16):
    """Returns the pieces of a text in a stream."""
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def arguments(call):
    return call.args if isinstance(call.args, str) else json.dumps(call.args)


def flat(content):
    """Returns the text of a content that is a string, a list of parts, or a part."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, (flat(part) for part in content)))
    if isinstance(content, dict):
        if isinstance(content.get("text"), str):
            return content["text"]
        if "content" in content:
            return flat(content["content"])
        return json.dumps(content)
    return str(content)


def sse(data, event=None):
    name = f"event: {event}\n" if event else ""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"{name}data: {text}\n\n".encode()
