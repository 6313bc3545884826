"""Reports to the supervisor: they are numbered, and stored until the supervisor has acknowledged them as durable."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from troupe.supervisor.v1.runner_pb2 import RunnerReport


@dataclass(frozen=True)
class Attempt:
    """One attempt to execute a thread. Reports about other generations are ignored."""

    thread_id: str
    generation: int


@dataclass
class _Lane:
    """The reports of one attempt."""

    last: int = 0
    kept: deque[RunnerReport] = field(default_factory=deque)


class Outbox:
    """The reports of all attempts. It needs no limit: without the supervisor no turn begins, so reports are few."""

    def __init__(self) -> None:
        self._lanes: dict[Attempt, _Lane] = {}

    def record(self, attempt: Attempt, **kind: Any) -> RunnerReport:
        """Creates a report with the next number of its attempt; `kind` is the one field of its oneof."""
        lane = self._lanes.setdefault(attempt, _Lane())
        lane.last += 1
        report = RunnerReport(
            thread_id=attempt.thread_id, generation=attempt.generation, report_sequence=lane.last, **kind
        )
        lane.kept.append(report)
        return report

    def acknowledge(self, attempt: Attempt, up_to: int) -> None:
        """Removes the reports up to a number, which are durable or void."""
        kept = self._lanes[attempt].kept if attempt in self._lanes else deque()
        while kept and kept[0].report_sequence <= up_to:
            kept.popleft()

    def pending(self) -> list[RunnerReport]:
        """Returns the reports for a new stream, in the order of each attempt."""
        return [report for lane in self._lanes.values() for report in lane.kept]

    def last(self, attempt: Attempt) -> int:
        """Returns the number of the attempt's last report, acknowledged or not; 0 if there is none."""
        return self._lanes[attempt].last if attempt in self._lanes else 0

    def is_clear(self, attempt: Attempt) -> bool:
        """Returns whether every report of the attempt is durable."""
        return attempt not in self._lanes or not self._lanes[attempt].kept

    def forget(self, attempt: Attempt) -> None:
        """Removes an attempt whose reports are no longer needed."""
        self._lanes.pop(attempt, None)
