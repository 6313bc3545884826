"""One attempt at a thread: its agent, its current turn, and the reports about both."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Protocol

from troupe.supervisor.v1.event_pb2 import TurnOutcome
from troupe.supervisor.v1.runner_pb2 import (
    ShutdownThread,
    ThreadStoppedReport,
    Turn,
    TurnEndedReport,
    TurnStartedReport,
)
from troupe.supervisor.v1.thread_pb2 import ClosePolicy

from .agent import Agent
from .outbox import Attempt


class Report(Protocol):
    """Takes a report about an attempt; `kind` is the one field of RunnerReport's oneof."""

    def __call__(self, attempt: Attempt, **kind: Any) -> None: ...


class Program:
    """An agent with its turns. It never waits for the supervisor, so it continues while the runner is disconnected."""

    def __init__(self, attempt: Attempt, agent: Agent, report: Report) -> None:
        self.attempt = attempt
        # The newest received turn, for the hello.
        self.turn = 0
        # Whether the last report of the attempt was sent.
        self.is_over = False
        self._agent = agent
        self._report = report
        self._work: asyncio.Task[str] | None = None
        self._is_stopping = False
        self._why_stopped = ""

    def begin(self, turn: Turn) -> None:
        """Begins the next turn. A repeated turn is ignored, because commands are repeated on a new stream."""
        if turn.turn <= self.turn:
            return
        self.turn = turn.turn
        self._report(self.attempt, turn_started=TurnStartedReport(turn=turn.turn))
        self._work = asyncio.create_task(self._agent.turn(turn))
        self._work.add_done_callback(partial(self._turn_ended, turn.turn))

    def interrupt(self, turn: int, reason: str) -> None:
        """Stops a turn. A late interrupt does not affect the next turn."""
        if turn == self.turn:
            self._cancel(reason)

    async def stop(self, order: ShutdownThread) -> None:
        """Stops the agent within the grace period. `stopped` is the last report."""
        if self._is_stopping:
            # The command was repeated on a new stream, or with a stricter policy.
            if order.close_policy != ClosePolicy.CLOSE_POLICY_FINISH_TURN:
                self._cancel(order.reason)
            return
        self._is_stopping = True
        if self._work is not None and order.close_policy == ClosePolicy.CLOSE_POLICY_FINISH_TURN:
            await asyncio.wait({self._work}, timeout=order.grace.ToTimedelta().total_seconds())
        self._cancel(order.reason)
        if self._work is not None:
            await asyncio.wait({self._work})
        self.is_over = True
        self._report(self.attempt, stopped=ThreadStoppedReport(detail="the agent has ended"))

    def abandon(self) -> None:
        """Stops the agent without a report, because the supervisor has ended the attempt."""
        self._report = _keep_quiet
        self._cancel("abandoned")

    def _cancel(self, reason: str) -> None:
        if self._work is not None and not self._work.done():
            self._why_stopped = reason
            self._work.cancel()

    def _turn_ended(self, turn: int, work: asyncio.Task[str]) -> None:
        if work.cancelled():
            ended = TurnEndedReport(outcome=TurnOutcome.TURN_OUTCOME_INTERRUPTED, message=self._why_stopped)
        elif (error := work.exception()) is not None:
            ended = TurnEndedReport(outcome=TurnOutcome.TURN_OUTCOME_ERRORED, message=repr(error))
        else:
            ended = TurnEndedReport(outcome=TurnOutcome.TURN_OUTCOME_COMPLETED, message=work.result())
        ended.turn = turn
        self._report(self.attempt, turn_ended=ended)


def _keep_quiet(attempt: Attempt, **kind: Any) -> None:
    """Ignores a report."""
