"""The base classes of events. `troupe.events` has one class per kind."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from .supervisor.v1 import event_pb2

if TYPE_CHECKING:
    from .client import Approval, Session


class Event:
    """One change of a session's state."""

    def __init__(self, proto: event_pb2.Event) -> None:
        self.proto = proto
        """The whole event, as the supervisor sent it."""

    @property
    def sequence(self) -> int:
        """The event's number in the session: 1 for the first event, increased by 1 for each event."""
        return self.proto.sequence

    @property
    def session(self) -> str:
        """The session's id."""
        return self.proto.session_id

    @property
    def thread(self) -> str:
        """The id of the thread that the event is about; empty for events about the session."""
        return self.proto.thread_id

    @property
    def time(self) -> datetime:
        """The time at which the event was recorded."""
        return self.proto.time.ToDatetime(timezone.utc)

    @property
    def actor(self) -> str:
        """The principal that caused the event: `operator:NAME`, `thread:ID`, `runner:NAME` or `service`."""
        return self.proto.actor

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.sequence} thread={self.thread or '-'}>"


class UnknownEvent(Event):
    """An event of a kind that this release does not know. Ignore it."""


class ApprovalEvent(Event):
    """An event that asks an operator for a decision."""

    _owner: Session | None = None

    def _bind(self, session: Session) -> None:
        self._owner = session

    async def grant(self, reason: str = "") -> Approval:
        """Grants the request."""
        return await self._session().grant(self.proto.approval_requested.approval_id, reason)

    async def deny(self, reason: str = "") -> Approval:
        """Denies the request. A denial affects this request only."""
        return await self._session().deny(self.proto.approval_requested.approval_id, reason)

    def _session(self) -> Session:
        if self._owner is None:
            raise TypeError("this event belongs to a synchronous session: call session.grant(event.data.approval_id)")
        return self._owner
