"""The examples, against a provider that follows a script."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

from troupe.runner import Runner
from troupe.supervisor.v1 import transcript_pb2

from .pair import DEADLINE, PairTest

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import tool_loop  # noqa: E402

LABELS = {"language": "python"}


def provider(answer: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> ThreadingHTTPServer:
    """Starts a provider that answers a conversation with the message that the function returns."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            usage = {"prompt_tokens": 10, "completion_tokens": 2}
            found = json.dumps({"choices": [{"message": answer(body["messages"])}], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def read(path: str) -> dict[str, Any]:
    """Returns the call of a tool."""
    function = {"name": "read_file", "arguments": json.dumps({"path": path})}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": path, "type": "function", "function": function}]}


class ExamplesTest(PairTest):
    """The pair has no other runner."""

    arguments = ("--no-runner",)

    async def test_tool_loop_reads_files_that_it_may_read(self) -> None:
        (self.pair.project / "note.txt").write_text("the parser is old")
        (self.pair.directory / "secret.txt").write_text("secret")

        def answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
            results = [message["content"] for message in messages if message["role"] == "tool"]
            paths = ["note.txt", "../secret.txt"]
            if len(results) < len(paths):
                return read(paths[len(results)])
            return {"role": "assistant", "content": " | ".join(results)}

        server = provider(answer)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        environment = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}"}
        with mock.patch.dict(os.environ, environment):
            async with self.pair.connect() as client:
                runner = Runner(
                    client, tool_loop.tool_loop, labels=LABELS, enforces_tools=True, enforces_read_only=True
                )
                running = asyncio.create_task(runner.run())
                async with client.session(cwd=self.pair.project, runner_labels=LABELS) as session:
                    thread = await session.spawn("explorer", "What is old?")
                    text = (await thread.result(DEADLINE)).text
                    self.assertTrue(text.startswith("the parser is old | "), text)
                    self.assertIn("is not in the project", text)
                    self.assertEqual((await thread.info()).usage.input_tokens, 30)
                    calls = [entry async for entry in thread.transcript() if entry.HasField("tool_call")]
                    self.assertEqual([call.tool_call.tool for call in calls], ["read_file", "read_file"])
                    allowed = {call.tool_call.verdict for call in calls}
                    self.assertEqual(allowed, {transcript_pb2.TOOL_VERDICT_ALLOWED})
                runner.drain()
                await asyncio.wait_for(running, DEADLINE)
