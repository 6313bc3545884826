"""The examples, against a provider that follows a script."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

from troupe.events import ApprovalRequested, TurnEnded
from troupe.runner import Agent, Runner
from troupe.supervisor.v1 import transcript_pb2

from .pair import DEADLINE, PairTest

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import messages_loop  # noqa: E402
import state_graph  # noqa: E402
import tool_loop  # noqa: E402

LABELS = {"language": "python"}
# The model reads these files, one after the other. Then it answers with what it has read.
PATHS = ("note.txt", "../secret.txt")
Json = dict[str, Any]


def chat_completion(messages: list[Json]) -> Json:
    """Answers as the chat completions API of OpenAI does."""
    calls = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    results = {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}
    assert calls == list(results), "each call needs a result"
    message: Json = {"role": "assistant", "content": " | ".join(results.values())}
    if len(results) < len(PATHS):
        path = PATHS[len(results)]
        function = {"name": "read_file", "arguments": json.dumps({"path": path})}
        message["tool_calls"] = [{"id": path, "type": "function", "function": function}]
    usage = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens": 2}
    return {"choices": [{"message": message}], "usage": usage}


def message(messages: list[Json]) -> Json:
    """Answers as the messages API of Anthropic does."""
    contents: list[str | list[Json]] = [message["content"] for message in messages]
    blocks = [block for content in contents if not isinstance(content, str) for block in content]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    results = {block["tool_use_id"]: block["content"] for block in blocks if block["type"] == "tool_result"}
    assert calls == list(results), "each call needs a result"
    content: list[Json] = [{"type": "text", "text": " | ".join(results.values()) or "I read the files."}]
    if len(results) < len(PATHS):
        path = PATHS[len(results)]
        content.append({"type": "tool_use", "id": path, "name": "read_file", "input": {"path": path}})
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 4, "output_tokens": 2}
    return {"content": content, "usage": usage}


class Provider(BaseHTTPRequestHandler):
    """A provider with both APIs."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {"/v1/chat/completions": chat_completion, "/v1/messages": message}[self.path]
        found = json.dumps(answer(body["messages"])).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class ExamplesTest(PairTest):
    """The pair has no other runner."""

    arguments = ("--no-runner",)

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        (self.pair.project / "note.txt").write_text("the parser is old")
        (self.pair.directory / "secret.txt").write_text("secret")
        server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        address = f"http://127.0.0.1:{server.server_port}"
        environment = {
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": address,
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": f"{address}/v1",
        }
        patch = mock.patch.dict(os.environ, environment)
        patch.start()
        self.addCleanup(patch.stop)

    async def test_tool_loop(self) -> None:
        await self.check(tool_loop.tool_loop)

    async def test_messages_loop(self) -> None:
        await self.check(messages_loop.messages_loop)

    async def test_state_graph(self) -> None:
        await self.check(state_graph.state_graph)

    async def check(self, example: Agent) -> None:
        """Interrupts the first turn while it waits for permission, grants the calls of the second one, and asks again."""
        async with self.pair.connect() as client:
            runner = Runner(client, example, labels=LABELS, enforces_tools=True, enforces_read_only=True)
            running = asyncio.create_task(runner.run())
            async with client.session(
                cwd=self.pair.project, runner_labels=LABELS, approve_tools=["read_file"]
            ) as session:
                thread = await session.spawn("explorer", "What is old?")
                is_interrupted = False
                async for event in session.events():
                    match event:
                        case ApprovalRequested() if is_interrupted:
                            await event.grant()
                        case ApprovalRequested():
                            is_interrupted = True
                            await thread.interrupt("wait")
                        case TurnEnded() if event.data.turn == 1:
                            await thread.send("Go on.")
                        case TurnEnded() if event.data.turn == 2:
                            await thread.send("Again.")
                        case TurnEnded():
                            break
                        case _:
                            pass
                text = (await thread.result(DEADLINE)).text
                self.assertTrue(text.startswith("the parser is old | "), text)
                self.assertIn("is not in the project", text)
                # One answer before the interrupt, three in the second turn and one in the third.
                usage = (await thread.info()).usage
                self.assertEqual((usage.input_tokens, usage.cached_input_tokens, usage.output_tokens), (50, 20, 10))
                calls = [entry.tool_call async for entry in thread.transcript() if entry.HasField("tool_call")]
                self.assertEqual(
                    [(call.tool, call.verdict) for call in calls],
                    [("read_file", transcript_pb2.TOOL_VERDICT_ALLOWED)] * len(PATHS),
                )
            runner.drain()
            await asyncio.wait_for(running, DEADLINE)
