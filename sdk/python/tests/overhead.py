"""Compares `Session.spawn` with a call of the generated stub: the median of both, in alternation. `sdk/run overhead` runs it."""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable

import grpc

from tests.pair import Pair
from troupe.supervisor.v1 import supervisor_pb2
from troupe.supervisor.v1.supervisor_pb2_grpc import AgentSupervisorServiceStub

ROUNDS = 500
WARM_UP = 50


async def main() -> None:
    most = str(2 * (WARM_UP + ROUNDS) + 1)
    pair = Pair("--no-runner", "--max-threads", most, "--max-open-threads", most, "--max-total-threads", most)
    try:
        await pair.start()
        async with (
            pair.connect() as client,
            client.session() as session,
            grpc.aio.insecure_channel(pair.url.removeprefix("http://")) as channel,
        ):
            stub = AgentSupervisorServiceStub(channel)

            async def raw() -> object:
                request = supervisor_pb2.SpawnAgentRequest(
                    request_id=str(uuid.uuid4()), session_id=session.id, agent_type="explorer", message="Find it."
                )
                return await stub.SpawnAgent(request, timeout=30)

            async def sdk() -> object:
                return await session.spawn("explorer", "Find it.")

            calls: tuple[Callable[[], Awaitable[object]], ...] = (raw, sdk)
            times: dict[str, list[float]] = {"raw": [], "sdk": []}
            for number in range(WARM_UP + ROUNDS):
                for call in calls:
                    begun = time.perf_counter()
                    await call()
                    if number >= WARM_UP:
                        times[call.__name__].append((time.perf_counter() - begun) * 1e3)
            stub_ms, sdk_ms = (statistics.median(times[name]) for name in ("raw", "sdk"))
            print(f"python: spawn p50 {sdk_ms:.2f} ms, stub {stub_ms:.2f} ms, ratio {sdk_ms / stub_ms:.2f} (at most 1.3)")
    finally:
        await pair.remove()


if __name__ == "__main__":
    asyncio.run(main())
