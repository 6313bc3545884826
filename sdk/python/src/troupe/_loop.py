"""The event loop of a synchronous client, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import TypeVar

ValueT = TypeVar("ValueT")


class Loop:
    """The event loop that runs the asynchronous client. `stop` ends the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="troupe", daemon=True)
        self._thread.start()

    def run(self, awaitable: Awaitable[ValueT]) -> ValueT:
        """Waits for a result. An interrupt, such as Ctrl-C, cancels the work."""

        async def wait() -> ValueT:
            return await awaitable

        future = asyncio.run_coroutine_threadsafe(wait(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, iterator: AsyncIterator[ValueT]) -> Iterator[ValueT]:
        """Iterates over an asynchronous iterator."""
        while True:
            try:
                value = self.run(iterator.__anext__())
            except StopAsyncIteration:
                return
            yield value

    def stop(self) -> None:
        """Ends the event loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
