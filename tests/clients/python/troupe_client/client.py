"""What a client does with a pair, from the catalogue to the last event: `python -m troupe_client.client`.

It narrates every step and answers what it saw; tests/test_client.py says what that has to be.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import grpc.aio
from google.protobuf.duration_pb2 import Duration
from troupe.registry.v1.registry_pb2 import ListAgentsRequest
from troupe.supervisor.v1.event_pb2 import Event
from troupe.supervisor.v1.session_pb2 import Limits
from troupe.supervisor.v1.supervisor_pb2 import (
    CloseSessionRequest,
    CreateSessionRequest,
    SpawnAgentRequest,
    WaitAgentsRequest,
    WatchThreadsResponse,
)
from troupe.supervisor.v1.thread_pb2 import StatusKind

from .refusal import Refusal, refusal_of
from .troupe import DEADLINE_SECONDS, Pair, Troupe
from .watcher import Watcher

MAX_DEPTH = 2


@dataclass
class Story:
    """The observations of the client."""

    agents: list[str]
    # The parent of each thread. The root's parent is empty.
    parents: dict[str, str]
    # The sequence of the snapshot.
    snapshot: int | None
    events: list[Event] = field(default_factory=list)
    # The position at each cut of the stream.
    cuts: list[int] = field(default_factory=list)
    streams: int = 0
    refusal: Refusal | None = None

    def closings(self) -> list[str]:
        """The threads in the order in which they were closed."""
        return [event.thread_id for event in self.events if event.WhichOneof("kind") == "thread_closed"]


async def run_scenario(pair: Pair) -> Story:
    """Runs the whole scenario."""
    async with Troupe(pair) as troupe:
        agents = await list_agents(troupe)
        session, root = await open_session(troupe)
        watcher = Watcher(troupe, session)
        news = watcher.news()
        await seen(news, lambda message: message.snapshot.last)
        story = Story(agents, {root: ""}, snapshot=watcher.position)
        lead = await spawn(troupe, session, root, "orchestrator", "Lead the search.\nhold")
        story.parents[lead] = root
        story.events += await seen(news, lambda message: is_about(message, lead, "turn_started"))

        # Two threads end without a watcher.
        cut(watcher, story)
        for place in ("the tests", "the docs"):
            story.parents[await spawn(troupe, session, lead, "explorer", f"Look through {place}.")] = lead
        scouts = [thread for thread, parent in story.parents.items() if parent == lead]
        await settled(troupe, scouts)

        # Cuts the stream again, in the middle of the missed events.
        story.events += await seen(news, lambda message: message.event.thread_id in scouts)
        cut(watcher, story)

        story.refusal = await refused_deeper(troupe, session, scouts[0])
        await close(troupe, session)
        story.events += await seen(news, lambda message: message.event.HasField("session_closed"))
        story.streams = watcher.streams
        return story


async def list_agents(troupe: Troupe) -> list[str]:
    """Returns the roles that can be spawned in the project: the first page, with up to 500 roles."""
    answer = await troupe.call(troupe.registry.ListAgents, ListAgentsRequest(cwd=troupe.project, allow_partial=True))
    names = [agent.agent_type for agent in answer.agents]
    print("agents   ", ", ".join(names))
    return names


async def open_session(troupe: Troupe) -> tuple[str, str]:
    """Opens a session whose root is this client itself. The root has no input, so no runner executes it."""
    request = CreateSessionRequest(
        # Because of the id, a retry opens no second session.
        request_id=str(uuid.uuid4()),
        cwd=troupe.project,
        limits=Limits(max_depth=MAX_DEPTH),
        labels={"client": "python"},
    )
    session = (await troupe.call(troupe.supervisor.CreateSession, request)).session
    print("session  ", session.session_id)
    return session.session_id, session.root_thread_id


async def spawn(troupe: Troupe, session: str, parent: str, agent_type: str, message: str) -> str:
    """Spawns a thread. It is durable when the call returns, but it has not completed its turn."""
    request = SpawnAgentRequest(
        request_id=str(uuid.uuid4()),
        session_id=session,
        parent_thread_id=parent,
        agent_type=agent_type,
        message=message,
    )
    thread = (await troupe.call(troupe.supervisor.SpawnAgent, request)).thread
    print("spawned  ", f"{'  ' * thread.depth}{agent_type}", thread.thread_id)
    return thread.thread_id


async def settled(troupe: Troupe, threads: list[str]) -> None:
    """Waits until all threads are settled. Each call returns as soon as one of them is settled."""
    waiting = set(threads)
    while waiting:
        request = WaitAgentsRequest(thread_ids=sorted(waiting), timeout=Duration(seconds=30))
        answer = await troupe.call(troupe.supervisor.WaitAgents, request)
        if answer.timed_out:
            raise TimeoutError(f"not settled: {waiting}")
        for entry in answer.statuses:
            waiting.discard(entry.thread_id)
            print("settled  ", entry.thread_id, StatusKind.Name(entry.status.kind), "-", entry.status.message)


async def refused_deeper(troupe: Troupe, session: str, parent: str) -> Refusal:
    """Tries a spawn below the maximum depth and returns the error."""
    try:
        await spawn(troupe, session, parent, "explorer", "Look deeper.")
    except grpc.aio.AioRpcError as error:
        refusal = refusal_of(error)
        print("refused  ", refusal.code.name, refusal.reason, "-", refusal.message)
        return refusal
    raise AssertionError(f"a thread below depth {MAX_DEPTH} was spawned")


async def close(troupe: Troupe, session: str) -> None:
    """Closes the session and returns when all of its threads are closed."""
    request = CloseSessionRequest(request_id=str(uuid.uuid4()), session_id=session, wait=True)
    answer = await troupe.call(troupe.supervisor.CloseSession, request)
    print("closed   ", answer.session.closed)


def cut(watcher: Watcher, story: Story) -> None:
    """Cuts the stream on purpose."""
    position = story.events[-1].sequence
    print("cut       after", position)
    story.cuts.append(position)
    watcher.cut()


async def seen(
    news: AsyncIterator[WatchThreadsResponse], is_last: Callable[[WatchThreadsResponse], bool]
) -> list[Event]:
    """Reads events up to and including the expected message."""

    async def collect() -> list[Event]:
        events = []
        async for message in news:
            if message.HasField("event"):
                events.append(message.event)
                print(f"{message.sequence:9} ", message.event.WhichOneof("kind"), message.event.thread_id)
            else:
                print("snapshot ", f"as of {message.sequence}, threads: {len(message.snapshot.threads)}")
            if is_last(message):
                break
        return events

    return await asyncio.wait_for(collect(), DEADLINE_SECONDS)


def is_about(message: WatchThreadsResponse, thread: str, kind: str) -> bool:
    """Returns whether a message is an event of this kind and thread."""
    return message.event.thread_id == thread and message.event.WhichOneof("kind") == kind


if __name__ == "__main__":
    asyncio.run(run_scenario(Pair.from_environment()))
