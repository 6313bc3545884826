"""A client of Troupe, the control plane for trees of AI agents.

    async with troupe.connect() as client, client.session(cwd=".") as session:
        thread = await session.spawn("worker", "Fix the parser.")
        print((await thread.result(timeout=600)).text)

`troupe.sync` is the same client without an event loop. `troupe.events` has the kinds of events. The generated messages and
stubs are in `troupe.supervisor.v1`, `troupe.registry.v1` and `troupe.common.v1`.
"""

from . import _reasons
from ._reasons import *  # noqa: F403
from ._results import Model, Row
from ._rpc import RetryPolicy
from .client import (
    Approval,
    Artifact,
    Budget,
    Client,
    EventStream,
    JoinPolicy,
    OpeningSession,
    Result,
    Session,
    Thread,
    connect,
)
from .errors import (
    AgentClosedError,
    AgentError,
    AgentFailedError,
    AgentInterruptedError,
    ConfigError,
    ServiceError,
    TroupeError,
)

__all__ = [
    "AgentClosedError",
    "AgentError",
    "AgentFailedError",
    "AgentInterruptedError",
    "Approval",
    "Artifact",
    "Budget",
    "Client",
    "ConfigError",
    "EventStream",
    "JoinPolicy",
    "Model",
    "OpeningSession",
    "Result",
    "RetryPolicy",
    "Row",
    "ServiceError",
    "Session",
    "Thread",
    "TroupeError",
    "connect",
]
__all__ += _reasons.__all__
