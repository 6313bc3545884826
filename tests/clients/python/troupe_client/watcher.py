"""Follows a session: a snapshot, then each event exactly once and in order, however often the stream is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
from troupe.supervisor.v1.supervisor_pb2 import WatchThreadsRequest, WatchThreadsResponse

from .troupe import Troupe

# The codes of a lost stream or an unavailable supervisor. All other codes are errors of the request.
_LOST = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
_RETRY_SECONDS = 0.2


class HistoryError(Exception):
    """The events do not continue at the watcher's position."""


class Watcher:
    """A watcher of one session.

    The first stream begins with a snapshot, which contains the id of the log. Each later stream requests the events
    after `position` in that log. The supervisor does not store the positions of watchers, so the client must. To resume
    in another process, store both values.
    """

    def __init__(self, troupe: Troupe, session_id: str, after: int | None = None) -> None:
        """With `after`, the watch begins after that sequence instead of with a snapshot; 0 is the beginning."""
        self._troupe = troupe
        self._session_id = session_id
        self._log_id = ""
        self._call: grpc.aio.UnaryStreamCall[WatchThreadsRequest, WatchThreadsResponse] | None = None
        self._was_cut = False
        # The sequence of the last known event; None before the snapshot is complete.
        self.position = after
        # The number of opened streams.
        self.streams = 0

    def cut(self) -> None:
        """Cancels the stream at any point. The iteration continues with a new one."""
        if self._call is not None:
            self._was_cut = True
            self._call.cancel()

    async def news(self) -> AsyncIterator[WatchThreadsResponse]:
        """Yields the parts of the snapshot and then every event after it, without end. An interrupted snapshot is
        repeated completely. Telemetry, output and messages of unknown kinds are omitted."""
        while True:
            try:
                async for message in self._open():
                    if self._take(message):
                        yield message
            except asyncio.CancelledError:
                # The exception is the same for a cancelled stream and a cancelled task.
                if not self._was_cut:
                    raise
                self._was_cut = False
            except grpc.aio.AioRpcError as error:
                if error.code() not in _LOST:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)

    def _open(self) -> grpc.aio.UnaryStreamCall[WatchThreadsRequest, WatchThreadsResponse]:
        self.streams += 1
        # With None, after_sequence is absent, which differs from 0.
        request = WatchThreadsRequest(session_id=self._session_id, after_sequence=self.position, log_id=self._log_id)
        # Without a deadline, because an idle session sends only bookmarks for a long time.
        self._call = self._troupe.supervisor.WatchThreads(request, metadata=self._troupe.authorization)
        return self._call

    def _take(self, message: WatchThreadsResponse) -> bool:
        """Advances the position and returns whether the message is yielded."""
        kind = message.WhichOneof("message")
        if kind == "event":
            if self.position is None or message.sequence != self.position + 1:
                raise HistoryError(f"event {message.sequence} follows {self.position}")
            self.position = message.sequence
        elif kind == "snapshot":
            # Only a complete snapshot sets the position.
            if message.snapshot.last:
                self._log_id = message.snapshot.log_id
                self.position = message.sequence
        elif kind == "reset":
            raise HistoryError(f"another log: {message.reset.reason}")
        return kind in ("event", "snapshot")
