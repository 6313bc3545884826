"""The errors of this package. Errors of the services have one class per reason: see `troupe._reasons`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from .client import Result

# Reasons after which the same call, with the same request_id, may succeed.
_TRANSIENT_REASONS = frozenset(
    {"DRAINING", "SESSION_MOVING", "OVERLOADED", "RATE_LIMITED", "REGISTRY_UNAVAILABLE", "OUTCOME_UNKNOWN"}
)
# Codes of a lost connection. They are transient only without a reason: then the transport reports them.
_TRANSIENT_CODES = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN, grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL}
)


class TroupeError(Exception):
    """The base class of all errors of this package."""


class ConfigError(TroupeError):
    """An address, a token file or a certificate is missing or invalid."""


class ServiceError(TroupeError):
    """An error that a service returned, or the failure to reach the service.

    Decide by the class or by `reason`: texts may change, reasons do not. An error of the transport and an error with a
    reason that this release does not know have the class `ServiceError` itself.
    """

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        """The text of the service, without the reason."""
        self.code = code
        """The status code of gRPC."""
        self.reason = reason
        """The stable reason; empty if the error does not come from a service of Troupe."""
        self.metadata: Mapping[str, str] = MappingProxyType(dict(metadata or {}))
        """The variable parts of the message, by name."""
        self.retry_after = retry_after
        """Seconds after which a retry may succeed; None if the service does not say."""

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later. The client retries such calls by itself."""
        if self.reason:
            return self.reason in _TRANSIENT_REASONS
        return self.code in _TRANSIENT_CODES

    def __str__(self) -> str:
        return f"{self.reason or self.code.name}: {self.message}"


class AgentError(TroupeError):
    """A thread settled without completing its turn. `result` has its status."""

    def __init__(self, result: Result) -> None:
        text = result.status.message or result.status.reason or "no message"
        super().__init__(f"thread {result.thread_id} is {result.kind}: {text}")
        self.result = result
        """The result of the thread, with its status."""


class AgentFailedError(AgentError):
    """The last turn of the thread failed."""


class AgentInterruptedError(AgentError):
    """The last turn of the thread was stopped."""


class AgentClosedError(AgentError):
    """The thread is closed."""
