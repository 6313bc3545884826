"""An agent that reads files, as a loop around the messages API of Anthropic.

    ANTHROPIC_API_KEY=… ANTHROPIC_MODEL=claude-sonnet-5 python examples/messages_loop.py

The tool is that of tool_loop.py. The supervisor decides about each call, counts the usage and keeps the transcript. The agent
gets the threads of sessions with `runner_labels={"language": "python"}`.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from typing import Any

from tool_loop import read_file
from troupe.runner import Task, agent, serve

MAX_ROUNDS = 20
MAX_TOKENS = 8192
READ_FILE = {
    "name": "read_file",
    "description": "Reads a text file of the project.",
    "input_schema": {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}},
}


@agent()
async def messages_loop(task: Task) -> str:
    """Asks the model until it answers without a tool. The conversation continues with the next turn."""
    messages: list[dict[str, Any]] = task.state.setdefault("messages", [])
    messages.append({"role": "user", "content": task.prompt or task.message})
    for _ in range(MAX_ROUNDS):
        blocks = await complete(task, messages)
        calls = [block for block in blocks if block["type"] == "tool_use"]
        outputs = [await read_file(task, call["input"]) for call in calls]
        # An interrupted turn must not leave a call without its result, which the provider would reject.
        messages.append({"role": "assistant", "content": blocks})
        if not calls:
            return "\n".join(block["text"] for block in blocks if block["type"] == "text")
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": output}
            for call, output in zip(calls, outputs)
        ]
        messages.append({"role": "user", "content": results})
    raise RuntimeError(f"the model has not finished within {MAX_ROUNDS} rounds")


async def complete(task: Task, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the content blocks of the model's next message."""
    task.activity("the model answers")
    model = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5")
    body = {"model": model, "max_tokens": MAX_TOKENS, "messages": messages, "tools": [READ_FILE]}
    request = urllib.request.Request(
        os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com") + "/v1/messages",
        data=json.dumps(body).encode(),
        headers={
            "x-api-key": os.environ["ANTHROPIC_API_KEY"],
            "anthropic-version": "2023-06-01",
            "content-type": "application/json",
        },
    )

    def send() -> dict[str, Any]:
        with urllib.request.urlopen(request, timeout=300) as response:
            found: dict[str, Any] = json.load(response)
            return found

    answer = await asyncio.to_thread(send)
    usage = answer["usage"]
    # The provider counts tokens of its cache separately.
    cached: int = usage.get("cache_read_input_tokens") or 0
    read = usage["input_tokens"] + cached + (usage.get("cache_creation_input_tokens") or 0)
    task.usage(input_tokens=read, cached_input_tokens=cached, output_tokens=usage["output_tokens"])
    blocks: list[dict[str, Any]] = answer["content"]
    return blocks


if __name__ == "__main__":
    asyncio.run(serve(messages_loop, labels={"language": "python"}, enforces_tools=True, enforces_read_only=True))
