"""Threads that are executed by Python functions."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import troupe
from troupe.events import ApprovalRequested, TurnEnded, TurnStarted
from troupe.runner import Runner, Task, agent
from troupe.supervisor.v1 import transcript_pb2

from .pair import DEADLINE, PairTest, Relay

LABELS = {"language": "python"}


class RunnerTest(PairTest):
    """Each test has a pair without another runner, and a session for the runner of the test."""

    arguments = ("--no-runner",)

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.client = self.pair.connect()
        self.addAsyncCleanup(self.client.close)

    async def attach(
        self, function: Callable[[Task], Awaitable[str]], *roles: str, client: troupe.Client | None = None
    ) -> tuple[Runner, asyncio.Task[None]]:
        """Starts a runner and waits until the supervisor knows it."""
        made = agent(*roles)(function)
        runner = Runner(
            client or self.client,
            made,
            runner_id="python-test",
            labels=LABELS,
            enforces_tools=True,
            enforces_read_only=True,
        )
        running = asyncio.create_task(runner.run())
        await asyncio.wait_for(runner.attached.wait(), DEADLINE)
        return runner, running

    async def test_function_executes_turns(self) -> None:
        async def count(task: Task) -> str:
            task.state["turns"] = task.state.get("turns", 0) + 1
            task.usage(input_tokens=10, output_tokens=5)
            task.activity("counting")
            return f"{task.agent_type} {task.turn} {task.state['turns']}: {task.message}"

        runner, running = await self.attach(count, "reviewer")
        async with self.client.session(runner_labels=LABELS) as session:
            thread = await session.spawn("reviewer", "hello")
            self.assertEqual((await thread.result(DEADLINE)).text, "reviewer 1 1: hello")
            await thread.send("again")
            self.assertEqual((await thread.result(DEADLINE)).text, "reviewer 2 2: again")
            usage = (await thread.info()).usage
            self.assertEqual((usage.input_tokens, usage.output_tokens), (20, 10))
            other = await session.spawn("explorer", "hello")
            with self.assertRaisesRegex(troupe.AgentFailedError, 'no agent for the role "explorer"'):
                await other.result(DEADLINE)
        runner.drain()
        await asyncio.wait_for(running, DEADLINE)

    async def test_failure_and_interrupt_end_turn(self) -> None:
        async def work(task: Task) -> str:
            if task.message == "fail":
                raise RuntimeError("there is no model")
            if task.message == "hold":
                await asyncio.get_running_loop().create_future()
            return task.message

        await self.attach(work)
        async with self.client.session(runner_labels=LABELS) as session:
            with self.assertRaisesRegex(troupe.AgentFailedError, "there is no model"):
                await (await session.spawn("worker", "fail")).result(DEADLINE)
            held = await session.spawn("worker", "hold")
            async for event in session.events():
                if isinstance(event, TurnStarted) and event.thread == held.id:
                    break
            await held.interrupt("seen enough")
            with self.assertRaises(troupe.AgentInterruptedError):
                await held.result(DEADLINE)
            await held.send("go on")
            self.assertEqual((await held.result(DEADLINE)).text, "go on")

    async def test_artifacts_are_stored(self) -> None:
        large = bytes(range(256)) * 16_384

        async def write(task: Task) -> str:
            task.artifact("report.txt", b"all is well")
            task.artifact("large.bin", large, kind="data", media_type="application/octet-stream")
            return "written"

        await self.attach(write)
        async with self.client.session(runner_labels=LABELS) as session:
            thread = await session.spawn("worker", "write")
            await thread.result(DEADLINE)
            report, data = await thread.artifacts()
            self.assertEqual((report.name, report.kind, await report.read()), ("report.txt", "report", b"all is well"))
            self.assertEqual((data.proto.media_type, await data.read()), ("application/octet-stream", large))

    async def test_tools_are_authorized(self) -> None:
        async def work(task: Task) -> str:
            denied = await task.authorize("apply_patch", {"patch": "x"})
            asked = await task.authorize("read_file", {"path": "README.md"})
            return f"{denied.allowed} {asked.allowed}"

        await self.attach(work)
        async with self.client.session(approve_tools=["read_file"], runner_labels=LABELS) as session:
            thread = await session.spawn("explorer", "work")
            async for event in session.events():
                if isinstance(event, ApprovalRequested):
                    await event.grant()
                if isinstance(event, TurnEnded):
                    break
            self.assertEqual((await thread.result(DEADLINE)).text, "False True")

    async def test_transcript_has_work_of_function(self) -> None:
        async def work(task: Task) -> str:
            await task.authorize("apply_patch", {"patch": "x"})
            task.record("reasoning", "I need no patch.")
            if task.turn == 2:
                raise RuntimeError("there is no model")
            return "done"

        runner, running = await self.attach(work)
        async with self.client.session(runner_labels=LABELS) as session:
            thread = await session.spawn("explorer", "look")
            await thread.result(DEADLINE)
            await thread.send("again")
            with self.assertRaises(troupe.AgentFailedError):
                await thread.result(DEADLINE)
            entries = [(entry.turn, entry.kind, entry.text) async for entry in thread.transcript()]
            both = [(1, "look", "done", "MESSAGE"), (2, "again", "RuntimeError: there is no model", "ERROR")]
            expected = [
                entry
                for turn, given, last, kind in both
                for entry in (
                    (turn, transcript_pb2.TRANSCRIPT_KIND_INPUT, given),
                    (turn, transcript_pb2.TRANSCRIPT_KIND_TOOL_CALL, '{"patch": "x"}'),
                    (turn, transcript_pb2.TRANSCRIPT_KIND_REASONING, "I need no patch."),
                    (turn, transcript_pb2.TranscriptKind.Value(f"TRANSCRIPT_KIND_{kind}"), last),
                )
            ]
            self.assertEqual(entries, expected)
            (call, *_) = [entry.tool_call async for entry in thread.transcript() if entry.HasField("tool_call")]
            self.assertEqual((call.tool, call.verdict), ("apply_patch", transcript_pb2.TOOL_VERDICT_DENIED))
        runner.drain()
        await asyncio.wait_for(running, DEADLINE)

    async def test_task_spawns_children(self) -> None:
        async def lead(task: Task) -> str:
            if task.agent_type == "explorer":
                return "found"
            async with task.connect() as client:
                session = await client.get_session(task.session_id)
                child = await session.spawn("explorer", "look", parent=task.thread_id)
                return "led: " + (await child.result(DEADLINE)).text

        await self.attach(lead)
        async with self.client.session(runner_labels=LABELS) as session:
            thread = await session.spawn("orchestrator", "lead")
            self.assertEqual((await thread.result(DEADLINE)).text, "led: found")

    async def test_turn_survives_kill_and_lost_stream(self) -> None:
        gate = asyncio.Event()
        calls = 0

        async def work(_task: Task) -> str:
            nonlocal calls
            calls += 1
            await gate.wait()
            return "done"

        async with Relay(self.pair.url) as relay, self.pair.connect(relay.url) as client:
            runner, running = await self.attach(work, client=client)
            async with self.client.session(runner_labels=LABELS) as session:
                thread = await session.spawn("worker", "work")
                async for event in session.events():
                    if isinstance(event, TurnStarted):
                        break
                relay.drop()
                await self.pair.send(signal.SIGKILL)
                gate.set()
                await self.pair.start()
                self.assertEqual((await thread.result(DEADLINE)).text, "done")
            events = (await self.client.get_session(session.id)).events()
            ended = [event async for event in events if isinstance(event, TurnEnded)]
            self.assertEqual((len(ended), calls), (1, 1))
            entries = [entry.text async for entry in thread.transcript()]
            self.assertEqual(entries, ["work", "done"])
            runner.drain()
            await asyncio.wait_for(running, DEADLINE)

