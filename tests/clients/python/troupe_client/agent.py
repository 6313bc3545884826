"""The agent that the runner executes. A real agent would send the turn's blocks to a model."""

from __future__ import annotations

import asyncio
from typing import Protocol

from troupe.supervisor.v1.runner_pb2 import Turn


class Agent(Protocol):
    """An agent. It lives from a thread's first turn until the thread is stopped."""

    async def turn(self, turn: Turn) -> str:
        """Runs a turn and returns the last message. An interrupt cancels it. Any other exception fails the turn."""


class EchoAgent:
    """Repeats its input. The line `hold` keeps its turn running until it is interrupted or stopped."""

    async def turn(self, turn: Turn) -> str:
        """Returns the texts of the inputs. The list is empty if mail woke the thread; see the prompt's task block."""
        texts = [item.text for given in turn.inputs for item in given.items if item.HasField("text")]
        if "hold" in "\n".join(texts).splitlines():
            await asyncio.get_running_loop().create_future()
        return "echo: " + "\n".join(texts)
