"""Random operations while the service is killed and connections are lost. TROUPE_SDK_CHAOS sets their number."""

from __future__ import annotations

import asyncio
import os
import random
import signal

import troupe
from troupe.events import Event, InputQueued, SessionClosed, ThreadSpawned

from .pair import DEADLINE, PairTest, Relay

OPERATIONS = int(os.environ.get("TROUPE_SDK_CHAOS", "100"))
WORKERS = 4


class ChaosTest(PairTest):
    """One session, four tasks that call, a task that follows the events, and a task that breaks connections."""

    async def test_no_effect_is_lost_or_repeated(self) -> None:
        chance = random.Random(OPERATIONS)
        retry = troupe.RetryPolicy(attempts=50, initial_delay=0.1, max_delay=1.0)
        threads: list[troupe.Thread] = []
        inputs: dict[str, list[int]] = {}
        done = 0

        async with Relay(self.pair.url) as relay:
            client = troupe.connect(relay.url, data_dir=self.pair.data, retry=retry)
            self.addAsyncCleanup(client.close)
            session = await client.session()
            found: list[Event] = []

            async def follow() -> None:
                async for event in session.events():
                    found.append(event)

            async def operate() -> None:
                nonlocal done
                while done < OPERATIONS:
                    done += 1
                    if len(threads) < WORKERS or chance.random() < 0.3:
                        threads.append(await session.spawn("worker", "say: it", queue=True))
                        continue
                    thread = chance.choice(threads)
                    match chance.randrange(3):
                        case 0:
                            await thread.interrupt("chaos")
                        case 1:
                            await thread.info()
                        case _:
                            number = await thread.send("say: more", queue=True)
                            inputs.setdefault(thread.id, []).append(number)

            async def disturb() -> None:
                while done < OPERATIONS:
                    seen = done
                    while done < min(seen + 25, OPERATIONS):
                        await asyncio.sleep(0.01)
                    if chance.random() < 0.5:
                        relay.drop()
                    else:
                        await self.pair.send(signal.SIGKILL)
                        await self.pair.start()

            following = asyncio.create_task(follow())
            await asyncio.wait_for(asyncio.gather(disturb(), *(operate() for _ in range(WORKERS))), 10 * DEADLINE)
            # The streams of the other object stay open until they have seen the end.
            await (await client.get_session(session.id)).close()
            await asyncio.wait_for(following, DEADLINE)

        self.assertEqual([event.sequence for event in found], list(range(1, len(found) + 1)))
        self.assertIsInstance(found[-1], SessionClosed)
        spawned = {event.thread for event in found if isinstance(event, ThreadSpawned)}
        self.assertEqual(spawned, {session.root_id, *(thread.id for thread in threads)})
        queued: dict[str, list[int]] = {}
        for event in found:
            if isinstance(event, InputQueued):
                queued.setdefault(event.thread, []).append(event.data.number)
        self.assertEqual(
            {thread: sorted(numbers) for thread, numbers in inputs.items()},
            {thread: sorted(numbers) for thread, numbers in queued.items()},
        )
