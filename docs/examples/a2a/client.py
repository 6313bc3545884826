"""Sends messages to an A2A agent in one context, one after the other, and prints the updates of their tasks.

    python client.py AGENT-URL TOKEN-FILE MESSAGE...
"""

import asyncio
import sys

from pathlib import Path

import httpx

from a2a.client import AuthInterceptor, ClientConfig, CredentialService, create_client
from a2a.helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types.a2a_pb2 import Role, SendMessageRequest, TaskState


class Token(CredentialService):
    async def get_credentials(self, security_scheme_name, context):
        """Returns the token for a security scheme of the agent's card."""
        return Path(sys.argv[2]).read_text(encoding="utf-8").strip()


async def send(client, message):
    """Prints the updates of the message's task. Returns the task with its last status."""
    async for update in client.send_message(SendMessageRequest(message=message)):
        if update.HasField("artifact_update"):
            print("artifact:", get_artifact_text(update.artifact_update.artifact))
            continue
        if update.HasField("task"):
            task = update.task
        else:
            task.status.CopyFrom(update.status_update.status)
        print(TaskState.Name(task.status.state))
    if task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED:
        print("question:", get_message_text(task.status.message))
    return task


async def main(url, texts):
    # Troupe sends a keep-alive every 15 s. The default timeout of httpx is 5 s.
    config = ClientConfig(httpx_client=httpx.AsyncClient(timeout=30))
    # The client reads the agent's card at URL/.well-known/agent-card.json.
    async with await create_client(url, config, [AuthInterceptor(Token())]) as client:
        task = None
        for text in texts:
            print(">", text)
            message = new_text_message(text, role=Role.ROLE_USER)
            if task:
                message.context_id = task.context_id
            if task and task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED:
                message.task_id = task.id  # The message answers the question.
            task = await send(client, message)


asyncio.run(main(sys.argv[1], sys.argv[3:]))
