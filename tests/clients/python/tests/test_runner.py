"""Tests of threads that are executed from Python, by the events of their session."""

from __future__ import annotations

import asyncio
import unittest
import uuid

from google.protobuf.duration_pb2 import Duration
from troupe.supervisor.v1.event_pb2 import Event
from troupe.supervisor.v1.runner_pb2 import StartThread, Turn
from troupe.supervisor.v1.supervisor_pb2 import (
    CloseAgentRequest,
    CloseSessionRequest,
    CreateSessionRequest,
    InterruptAgentRequest,
    SendInputRequest,
    SpawnAgentRequest,
    WaitAgentsRequest,
)
from troupe.supervisor.v1.thread_pb2 import Status, StatusKind

from troupe_client.agent import Agent, EchoAgent
from troupe_client.client import is_about, seen
from troupe_client.runner import Runner
from troupe_client.troupe import DEADLINE_SECONDS, Pair, Troupe
from troupe_client.watcher import Watcher

RUNNER = "python-test"
# The session requires these labels, so that no other runner of the pair receives its threads.
LABELS = {"language": "python"}


class Gated:
    """An agent that works until the test opens the gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def turn(self, turn: Turn) -> str:
        """Waits at the gate."""
        await self.gate.wait()
        return f"turn {turn.turn} is done"


class Broken:
    """An agent that fails."""

    async def turn(self, _turn: Turn) -> str:
        """Fails."""
        raise RuntimeError("there is no model")


class RunnerTest(unittest.IsolatedAsyncioTestCase):
    """Each test has a session, and a runner that accepts only threads of this session."""

    async def asyncSetUp(self) -> None:
        self.troupe = Troupe(Pair.from_environment())
        self.addAsyncCleanup(self.troupe.close)
        self.agent: Agent = EchoAgent()
        request = CreateSessionRequest(cwd=self.troupe.project, runner_labels=LABELS)
        session = (await self.troupe.call(self.troupe.supervisor.CreateSession, request)).session
        self.session = session.session_id
        self.news = Watcher(self.troupe, self.session, after=0).news()
        self.start_runner()

    async def asyncTearDown(self) -> None:
        request = CloseSessionRequest(session_id=self.session, wait=True)
        await self.troupe.call(self.troupe.supervisor.CloseSession, request)
        self.runner.drain()
        await asyncio.wait_for(self.running, DEADLINE_SECONDS)

    async def test_turns(self) -> None:
        """runner: a spawned thread is executed, and its next turn by the same program"""
        thread = await self.spawn("hello")
        self.assertEqual((await self.settled(thread)).message, "echo: hello")
        await self.send(thread, "and again")
        self.assertEqual((await self.settled(thread)).message, "echo: and again")
        events = await self.until(thread, "turn_ended") + await self.until(thread, "turn_ended")
        started = [event for event in events if event.WhichOneof("kind") == "turn_started"]
        self.assertEqual(
            [(event.turn_started.turn, event.turn_started.generation) for event in started], [(1, 1), (2, 1)]
        )
        self.assertEqual({event.actor for event in started}, {f"runner:{RUNNER}"})

    async def test_failure(self) -> None:
        """runner: an agent that fails ends its turn as ERRORED, with the reason"""
        self.agent = Broken()
        status = await self.settled(await self.spawn("hello"))
        self.assertEqual(status.kind, StatusKind.STATUS_KIND_ERRORED)
        self.assertIn("no model", status.message)

    async def test_interrupt(self) -> None:
        """runner: an interrupted turn ends, and the thread accepts another turn"""
        thread = await self.spawn("hold")
        await self.until(thread, "turn_started")
        request = InterruptAgentRequest(thread_id=thread, reason="the test has seen enough")
        await self.troupe.call(self.troupe.supervisor.InterruptAgent, request)
        self.assertEqual((await self.settled(thread)).kind, StatusKind.STATUS_KIND_INTERRUPTED)
        await self.send(thread, "go on")
        self.assertEqual((await self.settled(thread)).message, "echo: go on")

    async def test_lost_stream(self) -> None:
        """runner: a turn that ends while the stream is lost is reported once, on the next stream"""
        self.agent = gated = Gated()
        thread = await self.spawn("work")
        await self.until(thread, "turn_started")
        self.runner.cut()
        gated.gate.set()
        self.assertEqual((await self.settled(thread)).message, "turn 1 is done")
        await self.troupe.call(self.troupe.supervisor.CloseAgent, CloseAgentRequest(thread_id=thread, wait=True))
        events = await self.until(thread, "thread_closed")
        kinds = [event.WhichOneof("kind") for event in events if event.thread_id == thread]
        self.assertEqual(kinds, ["turn_ended", "close_requested", "thread_closed"])

    async def test_close(self) -> None:
        """runner: closing a thread stops its turn without force"""
        thread = await self.spawn("hold")
        await self.until(thread, "turn_started")
        await self.troupe.call(self.troupe.supervisor.CloseAgent, CloseAgentRequest(thread_id=thread, wait=True))
        events = await self.until(thread, "thread_closed")
        ended = [event for event in events if event.WhichOneof("kind") == "turn_ended"]
        self.assertEqual(len(ended), 1)
        self.assertFalse(events[-1].thread_closed.forced)

    async def test_drain(self) -> None:
        """runner: a draining runner completes its turn and leaves; another runner takes the next turn"""
        self.agent = gated = Gated()
        thread = await self.spawn("work")
        await self.until(thread, "turn_started")
        self.runner.drain()
        gated.gate.set()
        await asyncio.wait_for(self.running, DEADLINE_SECONDS)
        self.assertEqual((await self.settled(thread)).message, "turn 1 is done")
        self.start_runner()
        await self.send(thread, "go on")
        self.assertEqual((await self.settled(thread)).message, "turn 2 is done")

    def start_runner(self) -> None:
        """Attaches in the background."""
        self.runner = Runner(self.troupe, RUNNER, self.make_agent, session_id=self.session, labels=LABELS)
        self.running = asyncio.create_task(self.runner.run())

    def make_agent(self, _start: StartThread) -> Agent:
        """Returns the agent that the test has selected."""
        return self.agent

    async def spawn(self, message: str) -> str:
        """Spawns a thread below the root without a role."""
        request = SpawnAgentRequest(request_id=str(uuid.uuid4()), session_id=self.session, message=message)
        return (await self.troupe.call(self.troupe.supervisor.SpawnAgent, request)).thread.thread_id

    async def send(self, thread: str, message: str) -> None:
        """Sends input to a thread."""
        request = SendInputRequest(request_id=str(uuid.uuid4()), thread_id=thread, message=message)
        await self.troupe.call(self.troupe.supervisor.SendInput, request)

    async def settled(self, thread: str) -> Status:
        """Waits until the thread is settled and returns its status."""
        request = WaitAgentsRequest(thread_ids=[thread], timeout=Duration(seconds=30))
        answer = await self.troupe.call(self.troupe.supervisor.WaitAgents, request)
        self.assertFalse(answer.timed_out)
        return answer.statuses[0].status

    async def until(self, thread: str, kind: str) -> list[Event]:
        """Returns the events since the last call, up to the thread's next event of this kind."""
        return await seen(self.news, lambda message: is_about(message, thread, kind))
