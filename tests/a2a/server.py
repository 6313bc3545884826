#!/usr/bin/env python3
"""A remote agent on the official Python SDK, for threads of the kind a2a. See README.md.

    server.py READY-FILE RELEASE

It serves JSON-RPC at /rpc and HTTP+JSON at /rest on a free port, which it writes to READY-FILE, and requires the token
TROUPE_A2A_TOKEN. The card below /poll has no streaming. RELEASE is a named pipe. The last line of a message selects what
it does: `ask`, `auth`, `fail`, `hold` (until RELEASE is opened); everything else is echoed in two pieces, with a file.
"""

import asyncio
import json
import os
import socket
import sys

import uvicorn

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part

TOKEN = f"Bearer {os.environ['TROUPE_A2A_TOKEN']}"
# The number of tasks of each context.
TASKS: dict[str, int] = {}


class Executor(AgentExecutor):
    def __init__(self, release: str) -> None:
        self.release = release

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        words = context.get_user_input().splitlines()[-1]
        task = context.current_task
        is_answer = task is not None
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
            TASKS[task.context_id] = TASKS.get(task.context_id, 0) + 1
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        say = lambda text: updater.new_agent_message([Part(text=text)])  # noqa: E731
        await updater.start_work(say("thinking"))
        if words == "ask":
            await updater.requires_input(say("Which one?"))
            return
        if words == "auth":
            await updater.requires_auth(say("log in"))
            return
        if words == "fail":
            await updater.failed(say("no disk"))
            return
        if words == "hold":
            # Opening the pipe waits for its writer.
            with await asyncio.to_thread(open, self.release) as pipe:
                await asyncio.to_thread(pipe.read)
        verb = "answer" if is_answer else f"task {TASKS[task.context_id]}"
        await updater.add_artifact([Part(text=f"{verb}: ")], artifact_id="echo")
        await updater.add_artifact([Part(text=words)], artifact_id="echo", append=True, last_chunk=True)
        await updater.add_artifact([Part(raw=words.encode(), filename="words.bin")], artifact_id="file")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class Authenticated:
    """Answers requests without the token with 401, except for the card."""

    def __init__(self, app: Starlette) -> None:
        self.app = app

    async def __call__(self, scope, receive, send) -> None:  # noqa: ANN001
        if scope["type"] == "http":
            request = Request(scope)
            is_card = request.url.path.endswith("/.well-known/agent-card.json")
            if not is_card and request.headers.get("authorization") != TOKEN:
                response: Response = PlainTextResponse("unauthorized", 401)
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)


def main(ready: str, release: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    card = AgentCard(
        name="Echo",
        description="Echoes.",
        version="1",
        supported_interfaces=[
            AgentInterface(url=f"{base}/rest", protocol_binding="HTTP+JSON", protocol_version="1.0"),
            AgentInterface(url=f"{base}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"),
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="echo", description="Echoes.", tags=["echo"])],
    )
    handler = DefaultRequestHandlerV2(Executor(release), InMemoryTaskStore(), card)
    polled = AgentCard()
    polled.CopyFrom(card)
    polled.capabilities.streaming = False
    routes = create_agent_card_routes(card)
    routes += create_agent_card_routes(polled, card_url="/poll/.well-known/agent-card.json")
    routes += create_jsonrpc_routes(handler, "/rpc") + create_rest_routes(handler, path_prefix="/rest")
    config = uvicorn.Config(Authenticated(Starlette(routes=routes)), log_level="warning", timeout_graceful_shutdown=1)
    # The socket listens already.
    with open(ready, "w", encoding="utf-8") as file:
        json.dump({"url": base}, file)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
