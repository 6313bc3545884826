#!/usr/bin/env python3
"""Compares SendStreamingMessage until its first event with SpawnAgent until its event, over gRPC: the median of both, in
alternation. Both use generated stubs, so that the clients cost the same. Each message has a context of its own, so the A2A
port also creates a session. No runner is attached, so that no agent uses the processor. `tests/a2a/run overhead` runs it.
"""

import asyncio
import os
import statistics
import time

import grpc

from a2a.types.a2a_pb2_grpc import A2AServiceStub
from troupe.supervisor.v1.supervisor_pb2 import CreateSessionRequest, SpawnAgentRequest, WatchThreadsRequest
from troupe.supervisor.v1.supervisor_pb2_grpc import AgentSupervisorServiceStub

from sdk import TOKEN, request

# A caller may have 100 contexts.
ROUNDS = 80
WARM_UP = 10


async def message(a2a: A2AServiceStub) -> float:
    """Sends a message in a new context. Returns the seconds until the first event."""
    begun = time.perf_counter()
    events = a2a.SendStreamingMessage(
        request("complete-task"), metadata=[("authorization", f"Bearer {TOKEN}"), ("a2a-version", "1.0")]
    )
    await anext(aiter(events))
    first = time.perf_counter() - begun
    events.cancel()
    return first


async def spawn(supervisor: AgentSupervisorServiceStub) -> float:
    """Spawns a thread in a new session. Returns the seconds until its event."""
    session = (await supervisor.CreateSession(CreateSessionRequest())).session.session_id
    watch = supervisor.WatchThreads(WatchThreadsRequest(session_id=session))
    messages = aiter(watch)
    await anext(messages)
    begun = time.perf_counter()
    spawned = supervisor.SpawnAgent(SpawnAgentRequest(session_id=session, agent_type="explorer", message="complete-task"))
    while not (await anext(messages)).event.HasField("thread_spawned"):
        pass
    first = time.perf_counter() - begun
    await spawned
    watch.cancel()
    return first


async def main() -> None:
    times: dict[str, list[float]] = {"message": [], "spawn": []}
    async with (
        grpc.aio.insecure_channel(os.environ["TROUPE_A2A"].removeprefix("http://")) as a2a,
        grpc.aio.insecure_channel(os.environ["TROUPE_SUPERVISOR_URL"].removeprefix("http://")) as supervisor,
    ):
        for number in range(WARM_UP + ROUNDS):
            taken = {
                "message": await message(A2AServiceStub(a2a)),
                "spawn": await spawn(AgentSupervisorServiceStub(supervisor)),
            }
            for name, seconds in taken.items():
                if number >= WARM_UP:
                    times[name].append(seconds * 1e3)
    message_ms, spawn_ms = (statistics.median(times[name]) for name in ("message", "spawn"))
    print(
        f"a2a: first event of a message p50 {message_ms:.2f} ms, of a spawn {spawn_ms:.2f} ms, "
        f"ratio {message_ms / spawn_ms:.2f} (at most 2)"
    )


asyncio.run(main())
