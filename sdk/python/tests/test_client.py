"""The client against a real pair with the sample agent, which calls no model."""

from __future__ import annotations

import asyncio
import json

import grpc
from pydantic import BaseModel, ValidationError

import troupe
from troupe import Budget, JoinPolicy
from troupe.events import ApprovalRequested, Event, SessionClosed, ThreadSpawned, TurnEnded, TurnStarted
from troupe.supervisor.v1 import event_pb2, supervisor_pb2, thread_pb2

from .pair import DEADLINE, PairTest


class Finding(BaseModel):
    """The result of an agent."""

    path: str
    lines: int


class ClientTest(PairTest):
    """Each test has a pair and a client."""

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.client = self.pair.connect()
        self.addAsyncCleanup(self.client.close)

    async def test_result_has_last_message(self) -> None:
        async with self.client.session(cwd=self.pair.project, labels={"test": "result"}) as session:
            thread = await session.spawn("worker", "say: it is done")
            result = await thread.result(timeout=DEADLINE)
            self.assertEqual((result.text, result.kind), ("it is done", "COMPLETED"))
            await thread.send("say: and again")
            self.assertEqual((await thread.result(DEADLINE)).text, "and again")
            self.assertEqual([each.thread_id for each in await session.threads()], [thread.id])
            self.assertEqual(
                [each.session_id for each in await self.client.sessions(labels={"test": "result"})], [session.id]
            )
        self.assertTrue((await session.info()).closed)

    async def test_long_message_is_read_in_full(self) -> None:
        text = "long " * 5000
        async with self.client.session() as session:
            thread = await session.spawn("", f"say: {text}")
            self.assertEqual((await thread.result(DEADLINE)).text, text.strip())

    async def test_wait_all_keeps_order_and_failed_threads(self) -> None:
        async with self.client.session() as session:
            held = await session.spawn("worker", "hold")
            done = await session.spawn("worker", "say: done")
            first = await anext(session.as_completed([held, done], timeout=DEADLINE))
            self.assertEqual(first.thread_id, done.id)
            await held.interrupt("seen enough")
            results = await session.wait_all([held, done], timeout=DEADLINE)
            self.assertEqual([result.kind for result in results], ["INTERRUPTED", "COMPLETED"])
            with self.assertRaises(troupe.AgentInterruptedError) as raised:
                await held.result(DEADLINE)
            self.assertEqual(raised.exception.result.status.reason, "seen enough")
            await held.close()
            with self.assertRaises(troupe.AgentClosedError):
                await held.result(DEADLINE)
            await held.resume()
            await held.send("say: back")
            self.assertEqual((await held.result(DEADLINE)).text, "back")

    async def test_result_times_out(self) -> None:
        async with self.client.session() as session:
            held = await session.spawn("worker", "hold")
            with self.assertRaises(TimeoutError):
                await held.result(timeout=0.3)

    async def test_events_are_complete_and_end_with_session(self) -> None:
        seen: list[Event] = []

        async def follow(session: troupe.Session) -> None:
            async for event in session.events():
                seen.append(event)

        async with self.client.session() as session:
            other = await self.client.get_session(session.id)
            following = asyncio.create_task(follow(other))
            thread = await session.spawn("worker", "say: done")
            await thread.result(DEADLINE)
        await asyncio.wait_for(following, DEADLINE)
        self.assertEqual([event.sequence for event in seen], list(range(1, len(seen) + 1)))
        self.assertIsInstance(seen[-1], SessionClosed)
        kinds = [type(event) for event in seen if event.thread == thread.id]
        self.assertEqual(kinds[0], ThreadSpawned)
        self.assertLess(kinds.index(TurnStarted), kinds.index(TurnEnded))
        again = [event.sequence async for event in other.events(after=3)]
        self.assertEqual(again, list(range(4, len(seen) + 1)))
        self.assertEqual([event async for event in other.events(after=len(seen))], [])

    async def test_cancelled_read_loses_no_event(self) -> None:
        async with self.client.session() as session:
            async with session.events() as events:
                await anext(events)
                await anext(events)
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(anext(events), 0.2)
                await session.spawn("worker", "say: done")
                self.assertEqual((await asyncio.wait_for(anext(events), DEADLINE)).sequence, 3)

    async def test_closing_session_ends_its_streams(self) -> None:
        session = await self.client.session()
        events = session.events()
        for _ in range(2):
            await anext(events)
        pending = asyncio.ensure_future(events.__anext__())
        await asyncio.sleep(0)
        await session.close()
        with self.assertRaises(StopAsyncIteration):
            await asyncio.wait_for(pending, DEADLINE)

    async def test_error_in_block_closes_session(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            async with self.client.session():
                raise ZeroDivisionError
        (session,) = await self.client.sessions(include_closed=True)
        self.assertTrue(session.closed)

    async def test_errors_have_class_for_each_reason(self) -> None:
        async with self.client.session(max_depth=1, max_threads=1) as session:
            thread = await session.spawn("worker", "hold")
            with self.assertRaises(troupe.DepthLimitError) as depth:
                await thread.spawn("worker", "say: deeper")
            self.assertEqual(depth.exception.code, grpc.StatusCode.FAILED_PRECONDITION)
            self.assertFalse(depth.exception.is_transient)
            with self.assertRaises(troupe.ThreadLimitError):
                await session.spawn("worker", "say: one more")
            queued = await session.spawn("worker", "say: after the other", queue=True)
            self.assertEqual((await queued.info()).status.kind, thread_pb2.STATUS_KIND_QUEUED)
            with self.assertRaises(troupe.TemplateNotFoundError) as unknown:
                await session.spawn("no-such-role", "say: hello")
            self.assertIn("no-such-role", unknown.exception.metadata.values())
            with self.assertRaises(troupe.ThreadNotFoundError):
                await session.thread("0190a5a4-6c1e-7b3c-8f00-0242ac120002").result(DEADLINE)
        with self.assertRaises(troupe.ServiceError) as closed:
            await session.spawn("worker", "say: too late")
        self.assertIn(closed.exception.reason, ("SESSION_CLOSED", "THREAD_CLOSED"))

    async def test_request_id_of_caller_is_kept(self) -> None:
        async with self.client.session() as session:
            request = supervisor_pb2.SpawnAgentRequest(request_id="once")
            first = await session.spawn("worker", "say: once", request=request)
            again = await session.spawn("worker", "say: once", request=request)
            self.assertEqual(first.id, again.id)
            with self.assertRaises(troupe.RequestIdReusedError):
                await session.spawn("worker", "say: something else", request=request)

    async def test_operator_decides_approvals(self) -> None:
        call = {"tool_call": {"name": "spawn_agent", "args": {"agent_type": "explorer", "message": "say: found"}}}
        async with self.client.session(approve_tools=["spawn_agent"]) as session:
            lead = await session.spawn("orchestrator", f"{json.dumps(call)}\n{json.dumps(call)}\nsay: led")
            requests = 0
            async for event in session.events():
                match event:
                    case ApprovalRequested() if requests == 0:
                        requests += 1
                        granted = await event.grant("go on")
                        self.assertEqual(granted.proto.reason, "go on")
                    case ApprovalRequested():
                        (waiting,) = await session.approvals()
                        self.assertEqual(waiting.id, event.data.approval_id)
                        await waiting.deny("once is enough")
                    case TurnEnded(thread=lead.id):
                        break
                    case _:
                        pass
            self.assertIn("led", (await lead.result(DEADLINE)).text)
            self.assertEqual(await session.approvals(), [])
            decisions = [each.proto.decision for each in await session.approvals(include_resolved=True)]
            self.assertEqual(
                decisions, [event_pb2.APPROVAL_DECISION_GRANTED, event_pb2.APPROVAL_DECISION_DENIED]
            )

    async def test_thread_spawns_child_with_all_settings(self) -> None:
        async with self.client.session(max_threads=1) as session:
            thread = await session.spawn("worker", "hold")
            message = 'say: {"path": "a.py", "lines": 3}'
            child = await thread.spawn(
                "explorer", message, alias="scout", label="child", model="small", schema=Finding, queue=True
            )
            info = await child.info()
            self.assertEqual(
                (info.parent_thread_id, info.alias, info.label, info.model), (thread.id, "scout", "child", "small")
            )
            await thread.interrupt(only_this=True)
            self.assertEqual((await child.result(DEADLINE)).parse(Finding).lines, 3)

    async def test_budget_stops_thread(self) -> None:
        async with self.client.session(budget=Budget(tokens=1000)) as session:
            thread = await session.spawn("worker", "say: one", budget=Budget(turns=1))
            await thread.result(DEADLINE)
            with self.assertRaises(troupe.BudgetExhaustedError):
                await thread.send("say: two")
            await thread.set_budget(Budget(turns=2))
            await thread.send("say: two")
            self.assertEqual((await thread.result(DEADLINE)).text, "two")
            await session.set_budget(Budget(tokens=5000, wall_time=60))
            quota = await session.quota()
            self.assertEqual((quota.budget.tokens, quota.budget.wall_time.seconds), (5000, 60))

    async def test_results_match_their_schema(self) -> None:
        async with self.client.session() as session:
            thread = await session.spawn("worker", 'say: {"path": "a.py", "lines": 3}', schema=Finding)
            result = await thread.result(DEADLINE)
            finding = result.parse(Finding)
            self.assertEqual((finding.path, finding.lines), ("a.py", 3))
            self.assertEqual(result.value, {"path": "a.py", "lines": 3})
            await thread.send("say: none", schema={"type": "integer"})
            with self.assertRaises(troupe.AgentFailedError) as invalid:
                await thread.result(DEADLINE)
            self.assertIn("RESULT_INVALID", invalid.exception.result.text)
            # The thread still has to report a result.
            await thread.send("say: 5")
            self.assertEqual((await thread.result(DEADLINE)).value, 5)
            plain = await (await session.spawn("worker", "say: done")).result(DEADLINE)
            self.assertIsNone(plain.value)
            with self.assertRaises(ValidationError):
                plain.parse(Finding)
            with self.assertRaises(troupe.ServiceError) as bad:
                await session.spawn("worker", "say: x", schema={"type": "no such type"})
            self.assertEqual(bad.exception.code, grpc.StatusCode.INVALID_ARGUMENT)

    async def test_map_returns_row_for_each_item(self) -> None:
        paths = [f"src/{number}.py" for number in range(12)]
        async with self.client.session(max_threads=4) as session:
            message = 'say: {{"path": "{item}", "lines": 1}'
            rows = await session.map("worker", paths, message, limit=3, schema=Finding, timeout=DEADLINE)
            self.assertEqual([row.item for row in rows], paths)
            self.assertTrue(all(row.is_succeeded for row in rows))
            self.assertEqual([row.parse(Finding).path for row in rows], paths)
            named = [{"what": "bugs", "place": "docs"}, {"what": "tests", "place": "src"}]
            rows = await session.map("worker", named, "say: {what} in {place}", timeout=DEADLINE)
            self.assertEqual([row.text for row in rows], ["bugs in docs", "tests in src"])
            failing = 'say: "{item}"'
            rows = await session.map("worker", ["a", "b"], failing, schema={"const": "a"}, timeout=DEADLINE)
            self.assertEqual([row.state for row in rows], ["SUCCEEDED", "FAILED"])
            self.assertIn("RESULT_INVALID", rows[1].error)
            self.assertEqual((rows[0].value, rows[1].value), ("a", None))
            rows = await session.map(
                "worker",
                ["b", "a", "a"],
                failing,
                limit=1,
                schema={"const": "a"},
                on_failure=JoinPolicy.CANCEL_REST,
                timeout=DEADLINE,
            )
            self.assertEqual([row.state for row in rows], ["FAILED", "CANCELLED", "CANCELLED"])
            with self.assertRaises(TimeoutError):
                await session.map("worker", ["hold"], "{item}", timeout=0.3)
            with self.assertRaises(troupe.ServiceError) as unknown:
                await session.map("worker", ["a"], "{nothing}")
            self.assertEqual(unknown.exception.code, grpc.StatusCode.INVALID_ARGUMENT)

    async def test_transcript_is_read_and_followed(self) -> None:
        async with self.client.session() as session:
            thread = await session.spawn("worker", "say: one")
            await thread.result(DEADLINE)
            first = [entry async for entry in thread.transcript()]
            self.assertEqual([entry.number for entry in first], list(range(1, len(first) + 1)))
            self.assertIn("one", [entry.text for entry in first])
            last = [entry async for entry in thread.transcript(after=len(first) - 1)]
            self.assertEqual(last, first[-1:])

            async def follow() -> list[str]:
                return [entry.text async for entry in thread.transcript(after=len(first), follow=True)]

            following = asyncio.create_task(follow())
            await thread.send("say: two")
            await thread.result(DEADLINE)
            await thread.close()
            texts = await asyncio.wait_for(following, DEADLINE)
            self.assertIn("two", texts)
            self.assertNotIn("one", texts)

    async def test_stub_reaches_every_method(self) -> None:
        async with self.client.session() as session:
            await session.pause()
            request = supervisor_pb2.GetQuotaRequest(session_id=session.id)
            answer = await self.client.call(self.client.stub.GetQuota, request)
            self.assertEqual(answer.quota.open_threads, 1)
            with self.assertRaises(troupe.SessionPausedError):
                await session.spawn("worker", "say: hello")
