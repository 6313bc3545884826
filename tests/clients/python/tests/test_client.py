"""Checks the observations of the client's scenario."""

from __future__ import annotations

import asyncio
import unittest

import grpc

from troupe_client.client import MAX_DEPTH, Story, run_scenario
from troupe_client.troupe import Pair


class ClientTest(unittest.TestCase):
    """The scenario runs once, and each test checks another part of it."""

    story: Story

    @classmethod
    def setUpClass(cls) -> None:
        cls.story = asyncio.run(run_scenario(Pair.from_environment()))

    def test_agents(self) -> None:
        """the catalogue has the embedded roles"""
        self.assertLessEqual({"orchestrator", "explorer"}, set(self.story.agents))

    def test_no_event_is_missed_or_doubled(self) -> None:
        """two cuts of the stream cause no missing and no repeated event"""
        assert self.story.snapshot is not None
        first = self.story.snapshot + 1
        numbers = [event.sequence for event in self.story.events]
        self.assertEqual(numbers, list(range(first, first + len(numbers))))

    def test_cuts(self) -> None:
        """each cut causes a new stream that delivers events"""
        self.assertEqual(self.story.streams, 1 + len(self.story.cuts))
        self.assertEqual(len(self.story.cuts), 2)
        # After the first cut, two threads were spawned and settled without a watcher.
        missed = [event for event in self.story.events if event.sequence > self.story.cuts[0]]
        ended = [event.thread_id for event in missed if event.WhichOneof("kind") == "turn_ended"]
        self.assertEqual(len(ended), len(set(ended)))
        self.assertLessEqual(set(self.leaves()), set(ended))

    def test_depth_refusal(self) -> None:
        """a spawn that is too deep is rejected with the reason DEPTH_LIMIT"""
        refusal = self.story.refusal
        assert refusal is not None
        self.assertEqual((refusal.code, refusal.reason), (grpc.StatusCode.FAILED_PRECONDITION, "DEPTH_LIMIT"))
        self.assertEqual(refusal.metadata["max_depth"], str(MAX_DEPTH))

    def test_leaf_first(self) -> None:
        """children are closed before their parents, and the root last"""
        closings = self.story.closings()
        self.assertEqual(sorted(closings), sorted(self.story.parents))
        for thread, parent in self.story.parents.items():
            if parent:
                self.assertLess(closings.index(thread), closings.index(parent))

    def leaves(self) -> list[str]:
        """Returns the threads without children."""
        return [thread for thread in self.story.parents if thread not in self.story.parents.values()]
