"""An agent that reads files, as a loop around the chat completions API of OpenAI. Other providers have the same API.

    OPENAI_API_KEY=… OPENAI_MODEL=gpt-5.2 python examples/tool_loop.py

The supervisor decides about each call of the tool, counts the usage and keeps the transcript. The agent gets the threads of
sessions with `runner_labels={"language": "python"}`.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from troupe.runner import Task, agent, serve

MAX_ROUNDS = 20
MAX_FILE = 64 * 1024
READ_FILE = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a text file of the project.",
        "parameters": {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}},
    },
}


@agent()
async def tool_loop(task: Task) -> str:
    """Asks the model until it answers without a tool. The conversation continues with the next turn."""
    messages: list[dict[str, Any]] = task.state.setdefault("messages", [])
    messages.append({"role": "user", "content": task.prompt or task.message})
    for _ in range(MAX_ROUNDS):
        answer = await complete(task, messages)
        calls: list[dict[str, Any]] = answer.get("tool_calls") or []
        outputs = [await read_file(task, json.loads(call["function"]["arguments"])) for call in calls]
        # An interrupted turn must not leave a call without its result, which the provider would reject.
        messages.append(answer)
        for call, output in zip(calls, outputs):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        if not calls:
            return str(answer["content"])
    raise RuntimeError(f"the model has not finished within {MAX_ROUNDS} rounds")


async def complete(task: Task, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the next message of the model."""
    task.activity("the model answers")
    body = {"model": os.environ.get("OPENAI_MODEL", "gpt-5.2"), "messages": messages, "tools": [READ_FILE]}
    request = urllib.request.Request(
        os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions",
        data=json.dumps(body).encode(),
        headers={"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"},
    )

    def send() -> dict[str, Any]:
        with urllib.request.urlopen(request, timeout=300) as response:
            found: dict[str, Any] = json.load(response)
            return found

    answer = await asyncio.to_thread(send)
    usage = answer.get("usage", {})
    details: dict[str, int] = usage.get("prompt_tokens_details") or {}
    task.usage(
        input_tokens=usage.get("prompt_tokens", 0),
        cached_input_tokens=details.get("cached_tokens", 0),
        output_tokens=usage.get("completion_tokens", 0),
    )
    message: dict[str, Any] = answer["choices"][0]["message"]
    return message


async def read_file(task: Task, arguments: dict[str, str]) -> str:
    """Reads a file below the working directory, if the thread may use the tool."""
    decision = await task.authorize("read_file", arguments)
    if not decision.allowed:
        return decision.reason
    project = Path(task.working_directory).resolve()
    path = (project / arguments["path"]).resolve()
    if not path.is_relative_to(project):
        return f"{path} is not in the project"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")[:MAX_FILE]
    except OSError as error:
        text = f"cannot read {path}: {error}"
    task.record("tool_result", text)
    return text


if __name__ == "__main__":
    asyncio.run(serve(tool_loop, labels={"language": "python"}, enforces_tools=True, enforces_read_only=True))
