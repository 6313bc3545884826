"""The script in a prompt: finds the script, selects the current step, and interprets it.

A script is a JSON array between `@@` and `@@`, or its base64 between `@@b64:` and `@@`. One element is one model response.
Nothing is stored between requests: the conversation in the request determines the current step.
"""

import base64
import binascii
import json
import re
from dataclasses import dataclass, field

_START = re.compile(r"@@(?=\[)|@@b64:([A-Za-z0-9+/=_\-\s]+)@@")
_DECODER = json.JSONDecoder()

# The members that a step may have besides `tool`, `tools` and `text`.
_MODIFIERS = {"args", "namespace", "think", "delay", "error", "code", "message", "cut", "usage", "shell", "garbage"}

# The tools with which programs run a shell command, and their parameter for the command line. The first one is used if none
# is offered, so that a script can try a tool that a policy has removed.
_COMMAND = {"description": "a scripted command"}
_SHELLS = {
    "responses": {"exec_command": lambda command: {"cmd": command}, "shell": lambda command: {"command": ["sh", "-c", command]}},
    "chat": {"bash": lambda command: {"command": command, **_COMMAND}},
    "messages": {"Bash": lambda command: {"command": command, **_COMMAND}},
    "gemini": {"run_shell_command": lambda command: {"command": command, **_COMMAND}},
}

_PROGRAM = """const result = await tools.%s(%s);
text(typeof result === 'string' ? result : JSON.stringify(result));
"""


@dataclass(frozen=True)
class Item:
    """One part of a conversation. `kind` is user, assistant, call or result."""

    kind: str
    text: str = ""


@dataclass(frozen=True)
class Tool:
    """A tool that the program offers to the model."""

    name: str
    namespace: str = ""
    freeform: bool = False
    # The tools for the programs of a code-mode model, whose only tool runs JavaScript.
    nested: tuple = ()

    @property
    def labels(self):
        label = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return [label, *(f"{label}:{name}" for name in self.nested)]


@dataclass(frozen=True)
class Call:
    """A tool call of the model. `args` is an object, or a string for a freeform tool."""

    name: str
    args: object
    namespace: str = ""


@dataclass
class Step:
    """One model response."""

    number: int = 0
    text: str = ""
    think: str = ""
    calls: list = field(default_factory=list)
    delay: float = 0.0
    error: int = 0
    code: str = ""
    message: str = ""
    cut: bool = False
    garbage: bool = False
    usage: dict = field(default_factory=dict)

    @property
    def played(self):
        """Returns the name of the step in the log."""
        if self.error:
            return f"error {self.error}"
        if self.garbage:
            return "garbage"
        if self.calls:
            return "tool " + " ".join(call.name for call in self.calls)
        return "text"


class BadScript(ValueError):
    """An invalid script. The provider responds with status 418, so that no test mistakes the response for a reply."""


def find(text):
    """Returns the last script of a text and the text without its scripts, or (None, text)."""
    script, rest, position = None, [], 0
    while match := _START.search(text, position):
        found, end = _read(text, match)
        if found is None:
            rest.append(text[position : match.end()])
            position = match.end()
            continue
        script = found
        rest.append(text[position : match.start()])
        position = end
    rest.append(text[position:])
    return script, "".join(rest)


def _read(text, match):
    encoded = match.group(1)
    if encoded is not None:
        try:
            encoded = re.sub(r"\s", "", encoded).replace("-", "+").replace("_", "/")
            found = json.loads(base64.b64decode(encoded + "=" * (-len(encoded) % 4)))
        except (ValueError, binascii.Error) as error:
            raise BadScript(f"not the base64 of a JSON array: {error}") from error
        end = match.end()
    else:
        try:
            found, end = _DECODER.raw_decode(text, match.end())
        except ValueError as error:
            # A script that a program has quoted or cut, as in a summary, does not count as a script.
            if text.find("]@@", match.end()) < 0:
                return None, match.end()
            raise BadScript(f"not a JSON array: {error}") from error
        if not text.startswith("@@", end):
            return None, match.end()
        end += 2
    if not isinstance(found, list):
        raise BadScript("a script is a JSON array")
    return found, end


def encode(script):
    """Returns a script in base64, which survives any quoting."""
    return "@@b64:" + base64.b64encode(json.dumps(script).encode()).decode() + "@@"


def due(request):
    """Returns the prompt without its script, and the current step of a conversation."""
    items, tools = request.items, request.tools
    script, prompt, since = None, "", []
    for index in range(len(items) - 1, -1, -1):
        if items[index].kind != "user":
            continue
        script, prompt = find(items[index].text)
        if script is not None:
            since = items[index + 1 :]
            break
    if script is None:
        users = [item.text for item in items if item.kind == "user"]
        return (users[-1] if users else ""), Step(number=-1, text="There is no script in this conversation.")
    number = _position(script, since)
    if number >= len(script):
        return prompt, Step(number=number, text="The script is over.")
    step = _step(number, script[number], request)
    if step.calls and not tools:
        # A side request, such as one for a title, repeats the prompt and offers no tools.
        return prompt, Step(number=number, text="A reply without tools.")
    return prompt, step


def _position(script, since):
    """Returns the number of completed steps, counted by tool results and by messages of the assistant."""
    number, results = 0, 0
    for item in since:
        if number >= len(script):
            break
        wanted = _call_count(script[number])
        if item.kind == "result" and wanted:
            results += 1
            if results == wanted:
                number, results = number + 1, 0
        elif item.kind == "assistant" and not wanted and not {"error", "garbage"} & set(script[number]):
            number += 1
    return number


def _call_count(element):
    if not isinstance(element, dict):
        raise BadScript(f"a step is a JSON object, not {element!r}")
    if "tools" in element:
        return len(element["tools"])
    return 1 if "tool" in element or "shell" in element else 0


def _step(number, element, request):
    unknown = set(element) - _MODIFIERS - {"tool", "tools", "text"}
    if unknown:
        raise BadScript(f"a step has no {sorted(unknown)[0]!r}")
    calls = element.get("tools", [element] if "tool" in element or "shell" in element else [])
    return Step(
        number=number,
        text=element.get("text", ""),
        think=element.get("think", ""),
        calls=[_call(call, request) for call in calls],
        delay=float(element.get("delay", 0)),
        error=int(element.get("error", 0)),
        code=element.get("code", ""),
        message=element.get("message", ""),
        cut=bool(element.get("cut", False)),
        garbage=bool(element.get("garbage", False)),
        usage=element.get("usage", {}),
    )


def _call(element, request):
    tools = request.tools
    if "shell" in element:
        shells = _SHELLS[request.protocol]
        known = (name for name in shells if any(tool.name == name for tool in tools) or _in_code_mode(name, tools)[0])
        name = next(known, next(iter(shells)))
        return _offered(name, shells[name](element["shell"]), "", tools)
    return _offered(element["tool"], element.get("args", {}), element.get("namespace", ""), tools)


def _offered(name, args, namespace, tools):
    """Returns the call with the program's name of the tool, or unchanged if the program does not offer such a tool."""
    if namespace:
        return Call(name, args, namespace)
    for tool in tools:
        if tool.name == name:
            return Call(name, args, tool.namespace)
    for tool in tools:
        if tool.name in _own(name):
            return Call(tool.name, args, tool.namespace)
    outer, nested = _in_code_mode(name, tools)
    if outer:
        return Call(outer.name, _PROGRAM % (nested, json.dumps(args)), outer.namespace)
    return Call(name, args)


def _own(name):
    """Returns the names that the programs use for a tool of Troupe."""
    return [f"{prefix}{name}" for prefix in ("mcp__troupe__", "mcp_troupe_", "troupe__", "troupe_")]


def _in_code_mode(name, tools):
    """Returns the tool that runs programs, and the name of a tool in these programs."""
    for tool in tools:
        for nested in tool.nested:
            if nested == name or nested in _own(name):
                return tool, nested
    return None, None
