"""An A2A agent that counts words or characters. It asks once in each context.

It has no authentication, and serves this machine only.
"""

import uvicorn

from starlette.applications import Starlette

from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill

PORT = 9100


class Counter(AgentExecutor):
    # The unit of each context.
    units = {}

    async def execute(self, context, event_queue):
        # The first message of a thread begins with the role's prompt. The last part is the text.
        text = context.message.parts[-1].text
        task = context.current_task
        if task:
            # The message answers the question. The text to count is in the first message of the task.
            self.units[task.context_id] = "words" if "word" in text else "characters"
            text = task.history[0].parts[-1].text
        else:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        unit = self.units.get(task.context_id)
        if not unit:
            await updater.requires_input(new_text_message("Count words or characters?"))
            return
        await updater.start_work()
        count = len(text.split() if unit == "words" else text)
        await updater.add_artifact([new_text_part(f"{count} {unit}")], name="count")
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


card = AgentCard(
    name="Counter",
    description="Counts words or characters.",
    version="1",
    supported_interfaces=[
        AgentInterface(url=f"http://127.0.0.1:{PORT}", protocol_binding="JSONRPC", protocol_version="1.0")
    ],
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="count", name="count", description="Counts words or characters.", tags=["text"])],
)
handler = DefaultRequestHandler(Counter(), InMemoryTaskStore(), card)
routes = create_agent_card_routes(card) + create_jsonrpc_routes(handler, "/")
uvicorn.run(Starlette(routes=routes), port=PORT)
