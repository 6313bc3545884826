"""The synchronous client against a real pair."""

from __future__ import annotations

import asyncio
import json
import unittest

import troupe
import troupe.sync
from troupe.events import ApprovalRequested, SessionClosed, TurnEnded
from troupe.supervisor.v1 import supervisor_pb2

from .pair import DEADLINE, Pair


class SyncTest(unittest.TestCase):
    """Each test has a pair, and an event loop for the process of the pair."""

    def setUp(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.addCleanup(self.loop.close)
        self.pair = Pair()
        self.addCleanup(lambda: self.loop.run_until_complete(self.pair.remove()))
        self.loop.run_until_complete(self.pair.start())

    def test_session_without_event_loop(self) -> None:
        with troupe.sync.connect(self.pair.url, data_dir=self.pair.data) as client:
            with client.session(cwd=self.pair.project) as session:
                one = session.spawn("worker", "say: one")
                two = session.spawn("worker", "say: two")
                self.assertEqual(one.result(DEADLINE).text, "one")
                self.assertEqual([each.text for each in session.wait_all([one, two], timeout=DEADLINE)], ["one", "two"])
                self.assertEqual(sorted(each.text for each in session.as_completed([one, two])), ["one", "two"])
                with self.assertRaises(troupe.TemplateNotFoundError):
                    session.spawn("no-such-role", "say: hello")
                held = session.spawn("worker", "hold", parent=one)
                with self.assertRaises(TimeoutError):
                    held.result(0.2)
                request = supervisor_pb2.GetQuotaRequest(session_id=session.id)
                self.assertEqual(client.call(client.stub.GetQuota, request).quota.open_threads, 4)
                self.assertEqual(len(session.threads()), 3)
            events = list(client.get_session(session.id).events())
            self.assertEqual([event.sequence for event in events], list(range(1, len(events) + 1)))
            self.assertIsInstance(events[-1], SessionClosed)

    def test_approval_is_decided_by_session(self) -> None:
        call = {"tool_call": {"name": "spawn_agent", "args": {"agent_type": "explorer", "message": "say: found"}}}
        with troupe.sync.connect(self.pair.url, data_dir=self.pair.data) as client:
            with client.session(approve_tools=["spawn_agent"]) as session:
                lead = session.spawn("orchestrator", json.dumps(call))
                for event in session.events():
                    if isinstance(event, ApprovalRequested):
                        (waiting,) = session.approvals()
                        waiting.grant("go on")
                    if isinstance(event, TurnEnded) and event.thread == lead.id:
                        break
                self.assertEqual(lead.result(DEADLINE).kind, "COMPLETED")
