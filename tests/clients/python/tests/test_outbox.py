"""Reports are numbered in their attempt, and sent again until they are durable."""

from __future__ import annotations

import unittest

from troupe.supervisor.v1.runner_pb2 import TurnStartedReport

from troupe_client.outbox import Attempt, Outbox

FIRST = Attempt("thread", 1)
SECOND = Attempt("thread", 2)


class OutboxTest(unittest.TestCase):
    def test_numbers(self) -> None:
        """outbox: every attempt counts from 1"""
        outbox = Outbox()
        numbers = [
            outbox.record(attempt, turn_started=TurnStartedReport()).report_sequence
            for attempt in (FIRST, FIRST, SECOND)
        ]
        self.assertEqual(numbers, [1, 2, 1])
        self.assertEqual((outbox.last(FIRST), outbox.last(SECOND)), (2, 1))

    def test_what_is_durable_is_not_sent_again(self) -> None:
        """outbox: durable reports are not sent again, and the numbers continue"""
        outbox = Outbox()
        for turn in (1, 2, 3):
            outbox.record(FIRST, turn_started=TurnStartedReport(turn=turn))
        outbox.acknowledge(FIRST, 2)
        self.assertEqual([report.turn_started.turn for report in outbox.pending()], [3])
        self.assertFalse(outbox.is_clear(FIRST))
        outbox.acknowledge(FIRST, 3)
        self.assertTrue(outbox.is_clear(FIRST))
        self.assertEqual(outbox.record(FIRST, turn_started=TurnStartedReport()).report_sequence, 4)

    def test_what_is_forgotten_is_not_sent(self) -> None:
        """outbox: forgotten reports are not sent"""
        outbox = Outbox()
        outbox.record(FIRST, turn_started=TurnStartedReport())
        outbox.forget(FIRST)
        self.assertEqual(outbox.pending(), [])
