"""The connection to a pair: addresses and token from the environment, one channel per service, and deadlines."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import grpc.aio
from troupe.registry.v1.registry_pb2_grpc import AgentRegistryServiceStub
from troupe.supervisor.v1.runner_pb2_grpc import ThreadRunnerServiceStub
from troupe.supervisor.v1.supervisor_pb2_grpc import AgentSupervisorServiceStub

# Longer than any call takes on a busy machine. A call without a deadline may wait forever.
DEADLINE_SECONDS = 60.0

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Pair:
    """The addresses of a pair, the caller's token, and the directory of the sessions."""

    registry: str
    supervisor: str
    token: str
    project: str

    @classmethod
    def from_environment(cls) -> Pair:
        """Returns the pair of the TROUPE_ variables."""
        return cls(
            registry=os.environ["TROUPE_REGISTRY"],
            supervisor=os.environ["TROUPE_SUPERVISOR"],
            token=os.environ["TROUPE_TOKEN"],
            project=os.environ["TROUPE_PROJECT"],
        )


class Troupe:
    """An open connection to a pair; use it with `async with`."""

    def __init__(self, pair: Pair) -> None:
        self.project = pair.project
        # Sent with every call, including streams.
        self.authorization = (("authorization", f"Bearer {pair.token}"),)
        # The services use plaintext. With a proxy that adds TLS, use secure_channel.
        self._registry_channel = grpc.aio.insecure_channel(pair.registry)
        self._supervisor_channel = grpc.aio.insecure_channel(pair.supervisor)
        self.registry = AgentRegistryServiceStub(self._registry_channel)
        self.supervisor = AgentSupervisorServiceStub(self._supervisor_channel)
        self.runners = ThreadRunnerServiceStub(self._supervisor_channel)

    async def __aenter__(self) -> Troupe:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channels and ends all calls."""
        await self._registry_channel.close()
        await self._supervisor_channel.close()

    async def call(self, method: Callable[..., Awaitable[Answer]], request: Any) -> Answer:
        """Makes one unary call."""
        return await method(request, metadata=self.authorization, timeout=DEADLINE_SECONDS)
