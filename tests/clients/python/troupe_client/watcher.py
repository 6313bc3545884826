"""Follows a session: a snapshot, then each event exactly once and in order, however often the stream is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
from troupe.supervisor.v1.supervisor_pb2 import WatchThreadsRequest, WatchThreadsResponse

from .troupe import Troupe

# The stream or the supervisor is gone for the moment; everything else is an answer.
_LOST = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
_RETRY_SECONDS = 0.2


class HistoryError(Exception):
    """The events do not go on where they stopped."""


class Watcher:
    """One follower of one session.

    The first stream begins with a snapshot, which names the log. Every later one requests the events after `position`,
    in that log: the supervisor keeps no memory of its watchers, so the position is the client's to keep. A program that
    outlives its process would write both down.
    """

    def __init__(self, troupe: Troupe, session_id: str, after: int | None = None) -> None:
        """With `after` no snapshot comes first, but every event after that one; 0: from the beginning."""
        self._troupe = troupe
        self._session_id = session_id
        self._log_id = ""
        self._call: grpc.aio.UnaryStreamCall[WatchThreadsRequest, WatchThreadsResponse] | None = None
        self._was_cut = False
        # The last event that is known; None before the snapshot is complete.
        self.position = after
        # How often a stream was opened.
        self.streams = 0

    def cut(self) -> None:
        """Cancels the stream at any point. The iteration continues with a new one."""
        if self._call is not None:
            self._was_cut = True
            self._call.cancel()

    async def news(self) -> AsyncIterator[WatchThreadsResponse]:
        """The parts of the snapshot, then every event after it; it does not end by itself. A snapshot that was cut off
        comes again, whole. Telemetry, output and whatever is newer than this client are left out."""
        while True:
            try:
                async for message in self._open():
                    if self._take(message):
                        yield message
            except asyncio.CancelledError:
                # The same exception whether our stream was cancelled or our task is.
                if not self._was_cut:
                    raise
                self._was_cut = False
            except grpc.aio.AioRpcError as error:
                if error.code() not in _LOST:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)

    def _open(self) -> grpc.aio.UnaryStreamCall[WatchThreadsRequest, WatchThreadsResponse]:
        self.streams += 1
        # None leaves after_sequence absent, which is not the same as 0.
        request = WatchThreadsRequest(session_id=self._session_id, after_sequence=self.position, log_id=self._log_id)
        # Without a deadline: an idle session says nothing for long but bookmarks.
        self._call = self._troupe.supervisor.WatchThreads(request, metadata=self._troupe.authorization)
        return self._call

    def _take(self, message: WatchThreadsResponse) -> bool:
        """Moves the position on, and answers whether the message is news."""
        kind = message.WhichOneof("message")
        if kind == "event":
            if self.position is None or message.sequence != self.position + 1:
                raise HistoryError(f"event {message.sequence} follows {self.position}")
            self.position = message.sequence
        elif kind == "snapshot":
            # Only a whole one is a position.
            if message.snapshot.last:
                self._log_id = message.snapshot.log_id
                self.position = message.sequence
        elif kind == "reset":
            raise HistoryError(f"another log: {message.reset.reason}")
        return kind in ("event", "snapshot")
