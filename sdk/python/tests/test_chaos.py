"""Random operations while the service is killed and connections are lost. TROUPE_SDK_CHAOS sets their number."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from typing import TypeVar

import troupe
from troupe.events import (
    ApprovalRequested,
    ApprovalResolved,
    CloseRequested,
    Event,
    GroupEnded,
    GroupItemEnded,
    InputQueued,
    SessionClosed,
    ThreadClosed,
    ThreadSpawned,
)
from troupe.supervisor.v1 import event_pb2

from .pair import DEADLINE, PairTest, Relay

OPERATIONS = int(os.environ.get("TROUPE_SDK_CHAOS", "100"))
WORKERS = 4
# The number of operations between two faults.
INTERVAL = 25
ITEMS = ("a", "b", "c")
KINDS = ("spawn", "ask", "send", "interrupt", "info", "close", "transcript", "map", "artifacts", "decide")
# The sample agent spawns a child, which needs an approval.
CALL = {"tool_call": {"name": "spawn_agent", "args": {"agent_type": "explorer", "message": "say: found"}}}
EventT = TypeVar("EventT", bound=Event)


class Workload:
    """Operations of several workers on one session, and the effects that the service acknowledged."""

    def __init__(self, session: troupe.Session, chance: random.Random) -> None:
        self.threads: list[str] = []
        self.inputs: list[tuple[str, int]] = []
        self.closed: set[str] = set()
        # Threads that the service closed, because too many kills hit their turns.
        self.lost: set[str] = set()
        self.groups = 0
        self.decisions: dict[str, event_pb2.ApprovalDecision.ValueType] = {}
        self.operations: Counter[str] = Counter()
        # Released after each operation.
        self.progress = asyncio.Semaphore(0)
        self._session = session
        self._chance = chance

    async def work(self) -> None:
        """Makes one operation after the other. The threads of a worker are not closed by another worker."""
        threads: list[troupe.Thread] = []
        while self.operations.total() < OPERATIONS:
            kind = self._chance.choice(KINDS) if threads else "spawn"
            self.operations[kind] += 1
            match kind:
                case "spawn":
                    threads.append(await self._spawn("worker", "say: it"))
                case "ask":
                    threads.append(await self._spawn("orchestrator", json.dumps(CALL)))
                case "map":
                    await self._map()
                case "artifacts":
                    await self._read_artifacts()
                case "decide":
                    await self._decide()
                case _:
                    thread = self._chance.choice(threads)
                    try:
                        await self._use(thread, kind)
                    except (troupe.ThreadClosingError, troupe.ThreadClosedError):
                        self.lost.add(thread.id)
                    if thread.id in self.closed | self.lost:
                        threads.remove(thread)
            self.progress.release()

    async def _spawn(self, agent_type: str, message: str) -> troupe.Thread:
        thread = await self._session.spawn(agent_type, message, queue=True)
        self.threads.append(thread.id)
        return thread

    async def _use(self, thread: troupe.Thread, kind: str) -> None:
        match kind:
            case "send":
                self.inputs.append((thread.id, await thread.send("say: more", queue=True)))
            case "interrupt":
                await thread.interrupt("chaos")
            case "info":
                assert (await thread.info()).thread_id == thread.id
            case "close":
                await thread.close()
                self.closed.add(thread.id)
            case _:
                numbers = [entry.number async for entry in thread.transcript()]
                assert numbers == list(range(1, len(numbers) + 1)), numbers

    async def _map(self) -> None:
        rows = await self._session.map("worker", ITEMS, "say: {item}", limit=2)
        assert [row.item for row in rows] == list(ITEMS)
        # A kill can fail an item, but not change its result.
        assert all(row.text == row.item for row in rows if row.is_succeeded), rows
        self.groups += 1

    async def _read_artifacts(self) -> None:
        artifacts = await self._session.artifacts()
        if artifacts:
            artifact = self._chance.choice(artifacts)
            assert len(await artifact.read()) == artifact.proto.content.size

    async def _decide(self) -> None:
        for approval in await self._session.approvals():
            grant = self._chance.random() < 0.5
            try:
                decided = await (approval.grant() if grant else approval.deny())
            except troupe.IllegalTransitionError:
                # Another worker decided the approval, or the thread that needs the approval has stopped.
                continue
            self.decisions[approval.id] = decided.proto.decision


class ChaosTest(PairTest):
    """One session, four workers, a task that follows the events, and a task that breaks connections."""

    arguments = ("--max-open-threads", "10000", "--max-total-threads", "100000")

    async def test_no_effect_is_lost_or_repeated(self) -> None:
        chance = random.Random(OPERATIONS)
        retry = troupe.RetryPolicy(attempts=50, initial_delay=0.1, max_delay=1.0)
        found: list[Event] = []

        async with Relay(self.pair.url) as relay:
            client = troupe.connect(relay.url, data_dir=self.pair.data, retry=retry)
            self.addAsyncCleanup(client.close)
            session = await client.session(approve_tools=["spawn_agent"])
            workload = Workload(session, chance)

            async def follow() -> None:
                async for event in session.events():
                    found.append(event)

            async def disturb() -> None:
                for _ in range(OPERATIONS // INTERVAL - 1):
                    for _ in range(INTERVAL):
                        await workload.progress.acquire()
                    if chance.random() < 0.5:
                        relay.drop()
                    else:
                        await self.pair.send(signal.SIGKILL)
                        await self.pair.start()

            following = asyncio.create_task(follow())
            work = asyncio.gather(disturb(), *(workload.work() for _ in range(WORKERS)))
            await asyncio.wait_for(work, 10 * DEADLINE)
            # Another object closes the session, because `session.close` would end the followed stream before its last
            # event.
            await (await client.get_session(session.id)).close()
            await asyncio.wait_for(following, DEADLINE)
            tables = [each for each in await session.artifacts() if each.kind == "group-results"]
            keys = [[row["key"] for row in json.loads(await table.read())] for table in tables]

        def events(kind: type[EventT]) -> list[EventT]:
            return [event for event in found if isinstance(event, kind)]

        self.assertEqual([event.sequence for event in found], list(range(1, len(found) + 1)))
        self.assertIsInstance(found[-1], SessionClosed)
        spawned = events(ThreadSpawned)
        self.assertCountEqual(
            [
                event.thread
                for event in spawned
                # Children and the threads of groups do not come from a call of `spawn`.
                if event.data.parent_thread_id in ("", session.root_id) and not event.data.group_id
            ],
            [session.root_id, *workload.threads],
        )
        self.assertCountEqual([(event.thread, event.data.number) for event in events(InputQueued)], workload.inputs)
        # Every thread was closed once.
        self.assertCountEqual([event.thread for event in events(ThreadClosed)], [event.thread for event in spawned])
        causes = {event.thread: event.data.cause for event in events(CloseRequested)}
        self.assertLessEqual({causes[thread] for thread in workload.closed}, {"close"})
        self.assertLessEqual({causes[thread] for thread in workload.lost}, {"intensity"})
        # Every item of a group had one outcome, and each group has one table.
        groups = [event.data.group_id for event in events(GroupEnded)]
        self.assertEqual((len(set(groups)), len(groups)), (workload.groups, workload.groups))
        self.assertEqual(keys, [[str(index) for index in range(len(ITEMS))]] * len(groups))
        self.assertCountEqual(
            [(event.data.group_id, event.data.item) for event in events(GroupItemEnded)],
            [(group, item) for group in groups for item in range(len(ITEMS))],
        )
        # Every approval has one decision, which is the acknowledged one.
        decisions = [(event.data.approval_id, event.data.decision) for event in events(ApprovalResolved)]
        self.assertCountEqual(
            [approval for approval, _ in decisions], [event.data.approval_id for event in events(ApprovalRequested)]
        )
        self.assertLessEqual(workload.decisions.items(), dict(decisions).items())
