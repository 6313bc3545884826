#!/usr/bin/env python3
"""Checks of the A2A port with the official Python SDK. See README.md.

The port is at TROUPE_A2A (a URL), with the token TROUPE_A2A_TOKEN. Its agent is agent.py.
"""

import asyncio
import json
import os
import sys
import threading
import uuid

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TypeVar

import grpc
import httpx

from a2a.client import ClientConfig
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.client import Client, ClientCallContext
from a2a.client.client_factory import ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)

URL = os.environ["TROUPE_A2A"]
TOKEN = os.environ["TROUPE_A2A_TOKEN"]
BINDINGS = ["JSONRPC", "HTTP+JSON", "GRPC"]
WITHIN = 30

T = TypeVar("T")


class Token(CredentialService):
    """The token of the caller."""

    async def get_credentials(self, security_scheme_name: str, context: object) -> str | None:
        return TOKEN


async def connect(binding: str, *, streaming: bool = True, token: bool = True) -> Client:
    """Returns a client of the default agent."""
    config = ClientConfig(
        streaming=streaming,
        supported_protocol_bindings=[binding],
        httpx_client=httpx.AsyncClient(timeout=WITHIN),
        grpc_channel_factory=grpc.aio.insecure_channel,
    )
    interceptors = [AuthInterceptor(Token())] if token else []
    return await ClientFactory(config).create_from_url(URL, interceptors=interceptors)


def request(prefix: str, text: str = "Hello", *, task: str = "", context: str = "", wait: bool = True) -> SendMessageRequest:
    """Returns a message. The prefix of its id selects what agent.py does."""
    return SendMessageRequest(
        message=Message(
            message_id=f"tck-{prefix}-{uuid.uuid4()}",
            role=Role.ROLE_USER,
            parts=[Part(text=text)],
            task_id=task,
            context_id=context,
        ),
        configuration=SendMessageConfiguration(return_immediately=not wait),
    )


async def collect(stream: object) -> list[StreamResponse]:
    return [event async for event in stream]  # type: ignore[attr-defined]


async def send(client: Client, message: SendMessageRequest) -> Task:
    """Sends a message and returns its task."""
    events = await asyncio.wait_for(collect(client.send_message(message)), WITHIN)
    return events[0].task


def expect(found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"expected {expected!r}, found {found!r}")


async def blocking_message(binding: str) -> None:
    client = await connect(binding, streaming=False)
    task = await send(client, request("complete-task"))
    expect(task.status.state, TaskState.TASK_STATE_COMPLETED)
    expect(task.artifacts[0].parts[0].text, "Hello from TCK")
    found = await client.get_task(GetTaskRequest(id=task.id))
    expect([message.parts[0].text for message in found.history], ["Hello", "Hello from TCK"])
    second = await send(client, request("complete-task", context=task.context_id))
    expect(second.context_id, task.context_id)
    listed = await client.list_tasks(ListTasksRequest(context_id=task.context_id))
    expect([task.id for task in listed.tasks], [second.id, task.id])


async def repeated_message(binding: str) -> None:
    client = await connect(binding, streaming=False)
    message = request("complete-task")
    first = await send(client, message)
    expect((await send(client, message)).id, first.id)


async def streamed_message(binding: str) -> None:
    client = await connect(binding)
    events = await asyncio.wait_for(collect(client.send_message(request("stream-001"))), WITHIN)
    expect([event.WhichOneof("payload") for event in events], ["task", "status_update", "artifact_update", "status_update"])
    found = await client.get_task(GetTaskRequest(id=events[0].task.id))
    expect(list(events[0].task.history), list(found.history)[:1])
    expect(events[-1].status_update.status.state, TaskState.TASK_STATE_COMPLETED)
    positions = [
        int(getattr(event, event.WhichOneof("payload")).metadata["troupe/sequence"]) for event in events
    ]
    expect(positions, sorted(positions))


async def question(binding: str) -> None:
    client = await connect(binding, streaming=False)
    task = await send(client, request("input-required"))
    expect(task.status.state, TaskState.TASK_STATE_INPUT_REQUIRED)
    expect(task.status.message.parts[0].text, "What next?")
    done = await send(client, request("complete-task", "This", task=task.id))
    expect((done.id, done.status.state), (task.id, TaskState.TASK_STATE_COMPLETED))


async def cancellation(binding: str) -> None:
    client = await connect(binding, streaming=False)
    task = await send(client, request("complete-task", "hold", wait=False))
    stream = (await connect(binding)).subscribe(SubscribeToTaskRequest(id=task.id))
    first = await asyncio.wait_for(anext(stream), WITHIN)
    expect(first.task.id, task.id)
    canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
    expect(canceled.status.state, TaskState.TASK_STATE_CANCELED)
    last = (await asyncio.wait_for(collect(stream), WITHIN))[-1]
    expect(last.status_update.status.state, TaskState.TASK_STATE_CANCELED)


class Webhook(HTTPServer):
    """Receives push notifications."""

    def __init__(self) -> None:
        received: list[tuple[dict[str, str], dict]] = []
        ended = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                received.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(204)
                self.end_headers()
                state = body.get("statusUpdate", {}).get("status", {}).get("state")
                if state == "TASK_STATE_COMPLETED":
                    ended.set()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.received, self.ended = received, ended
        threading.Thread(target=self.serve_forever, daemon=True).start()


async def push(binding: str) -> None:
    webhook = Webhook()
    client = await connect(binding, streaming=False)
    message = request("stream-001")
    config = TaskPushNotificationConfig(id="hook", url=f"http://127.0.0.1:{webhook.server_port}/hook", token="token")
    config.authentication.scheme = "Bearer"
    config.authentication.credentials = "secret"
    message.configuration.task_push_notification_config.CopyFrom(config)
    task = await send(client, message)
    if not await asyncio.to_thread(webhook.ended.wait, WITHIN):
        raise AssertionError(f"the last update did not arrive: {webhook.received}")
    headers = webhook.received[0][0]
    expect((headers["authorization"], headers["x-a2a-notification-token"]), ("Bearer secret", "token"))
    kinds = [next(iter(body)) for _, body in webhook.received]
    expect(kinds, ["statusUpdate", "statusUpdate", "artifactUpdate", "statusUpdate"])
    expect(webhook.received[0][1]["statusUpdate"]["taskId"], task.id)
    webhook.shutdown()


async def extended_card(binding: str) -> None:
    client = await connect(binding)
    card = await client.get_extended_agent_card(GetExtendedAgentCardRequest())
    limits = [extension for extension in card.capabilities.extensions if "limits" in extension.uri]
    expect(len(limits), 1)


async def call_without_a_token(binding: str) -> None:
    client = await connect(binding, token=False)
    try:
        await client.get_task(GetTaskRequest(id="none"))
    except A2AClientError as error:
        expect("401" in str(error) or "token" in str(error), True)
        return
    raise AssertionError("the call has succeeded")


CHECKS: list[Callable[[str], Awaitable[None]]] = [
    blocking_message,
    repeated_message,
    streamed_message,
    question,
    cancellation,
    push,
    extended_card,
    call_without_a_token,
]


@dataclass
class Tasks:
    """The tasks of a binding when the services are killed."""

    completed: Task
    asked: Task
    stream: AsyncIterator[StreamResponse]
    started: list[StreamResponse]


def kinds(events: list[StreamResponse]) -> list[str | None]:
    return [event.WhichOneof("payload") for event in events]


async def before_restart(binding: str) -> Tasks:
    client = await connect(binding, streaming=False)
    completed = await send(client, request("complete-task"))
    asked = await send(client, request("input-required"))
    expect(asked.status.state, TaskState.TASK_STATE_INPUT_REQUIRED)
    stream = (await connect(binding)).send_message(request("stream-001", "hold"))
    started = [await asyncio.wait_for(anext(stream), WITHIN) for _ in range(2)]
    expect(started[1].status_update.status.state, TaskState.TASK_STATE_WORKING)
    return Tasks(completed, asked, stream, started)


async def after_restart(binding: str, tasks: Tasks) -> None:
    try:
        lost = await asyncio.wait_for(collect(tasks.stream), WITHIN)
    except A2AClientError:
        lost = []
    expect(kinds(lost), [])
    client = await connect(binding, streaming=False)
    found = await client.get_task(GetTaskRequest(id=tasks.completed.id))
    expect(found.artifacts, tasks.completed.artifacts)
    done = await send(client, request("complete-task", "This", task=tasks.asked.id))
    expect((done.id, done.status.state), (tasks.asked.id, TaskState.TASK_STATE_COMPLETED))

    task_id = tasks.started[0].task.id
    position = tasks.started[1].status_update.metadata["troupe/sequence"]
    context = ClientCallContext(service_parameters={"troupe-after-sequence": position})
    stream = (await connect(binding)).subscribe(SubscribeToTaskRequest(id=task_id), context=context)
    first = await asyncio.wait_for(anext(stream), WITHIN)
    expect((first.task.id, first.task.status.state), (task_id, TaskState.TASK_STATE_WORKING))
    await send(client, request("stream-001", "Continue", task=task_id))
    rest = await asyncio.wait_for(collect(stream), WITHIN)
    artifacts = [event.artifact_update.artifact for event in rest if event.HasField("artifact_update")]
    expect([artifact.parts[0].text for artifact in artifacts], ["Stream hello from TCK"])
    expect(rest[-1].status_update.status.state, TaskState.TASK_STATE_COMPLETED)
    found = await client.get_task(GetTaskRequest(id=task_id))
    expect(list(found.artifacts), artifacts)


async def check(name: str, work: Awaitable[T]) -> T | None:
    """Awaits a check and prints its result."""
    try:
        result = await asyncio.wait_for(work, 3 * WITHIN)
    except Exception as error:  # noqa: BLE001
        print(f"FAILED {name}\n  {type(error).__name__}: {error}", flush=True)
        return None
    print(f"ok {name}", flush=True)
    return result


async def main() -> None:
    for binding in BINDINGS:
        for operation in CHECKS:
            await check(f"{binding} {operation.__name__.replace('_', ' ')}", operation(binding))
    tasks = {binding: await check(f"{binding} tasks before kill -9", before_restart(binding)) for binding in BINDINGS}
    print("restart", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for binding in BINDINGS:
        if found := tasks[binding]:
            await check(f"{binding} tasks survive kill -9 during a stream", after_restart(binding, found))


if __name__ == "__main__":
    asyncio.run(main())
