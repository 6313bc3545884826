"""The agent that the runner executes. A real one would send the turn's blocks to a model."""

from __future__ import annotations

import asyncio
from typing import Protocol

from troupe.supervisor.v1.runner_pb2 import Turn


class Agent(Protocol):
    """An agent. It lives from a thread's first turn until the thread is stopped."""

    async def turn(self, turn: Turn) -> str:
        """Works, and answers its last message. An interrupt cancels it; any other exception is a turn that failed."""


class EchoAgent:
    """Repeats its input. The line `hold` keeps its turn running until it is interrupted or stopped."""

    async def turn(self, turn: Turn) -> str:
        """The texts of the inputs. The list is empty if mail woke the thread; the prompt's task block shows that."""
        texts = [item.text for given in turn.inputs for item in given.items if item.HasField("text")]
        if "hold" in "\n".join(texts).splitlines():
            await asyncio.get_running_loop().create_future()
        return "echo: " + "\n".join(texts)
