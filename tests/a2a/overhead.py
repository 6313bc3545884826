#!/usr/bin/env python3
"""Compares SendStreamingMessage until its first event with SpawnAgent until its event, over gRPC: the median of both, in
alternation. Each message has a context of its own, so the A2A port also opens a session. `tests/a2a/run overhead` runs it.
"""

import asyncio
import os
import statistics
import time

import troupe
from troupe.events import ThreadSpawned

from sdk import connect, request

# A caller may have 100 contexts.
ROUNDS = 80
WARM_UP = 10


async def main() -> None:
    a2a = await connect("GRPC")
    times: dict[str, list[float]] = {"message": [], "spawn": []}
    async with troupe.connect(os.environ["TROUPE_SUPERVISOR_URL"], data_dir=os.environ["TROUPE_DATA_DIR"]) as client:
        for number in range(WARM_UP + ROUNDS):
            begun = time.perf_counter()
            events = a2a.send_message(request("complete-task"))
            await anext(events)
            message = time.perf_counter() - begun
            async for _ in events:
                pass
            async with client.session() as session, session.events() as events:
                await anext(events)
                begun = time.perf_counter()
                await session.spawn("explorer", "complete-task")
                while not isinstance(await anext(events), ThreadSpawned):
                    pass
                spawn = time.perf_counter() - begun
            if number >= WARM_UP:
                times["message"].append(message * 1e3)
                times["spawn"].append(spawn * 1e3)
    message, spawn = (statistics.median(times[name]) for name in ("message", "spawn"))
    print(f"a2a: first event of a message p50 {message:.2f} ms, of a spawn {spawn:.2f} ms, ratio {message / spawn:.2f} (at most 2)")


asyncio.run(main())
