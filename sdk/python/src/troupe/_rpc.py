"""Calls of the supervisor: token, deadline, request id, retries, and the conversion of errors."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus

from ._config import Target, Token
from ._reasons import BY_REASON
from .errors import ServiceError
from .supervisor.v1.supervisor_pb2_grpc import AgentSupervisorServiceStub

if TYPE_CHECKING:
    # Only the type stub defines this class.
    from .supervisor.v1.supervisor_pb2_grpc import AgentSupervisorServiceAsyncStub

DOMAIN = "troupe.dev"
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
_DETAILS = "grpc-status-details-bin"
# Keep-alive pings end a connection to an unreachable machine. gRPC's own retries are disabled, because they ignore the
# reasons of errors.
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_retries", 0),
)

RequestT = TypeVar("RequestT", bound=Message)
RequestT_contra = TypeVar("RequestT_contra", bound=Message, contravariant=True)
ResponseT = TypeVar("ResponseT", bound=Message)
ResponseT_co = TypeVar("ResponseT_co", bound=Message, covariant=True)
Metadata = tuple[tuple[str, str], ...]


class Method(Protocol[RequestT_contra, ResponseT_co]):
    """A method of a stub with one request and one response."""

    def __call__(
        self, request: RequestT_contra, /, *, timeout: float | None = None, metadata: Metadata | None = None
    ) -> Awaitable[ResponseT_co]: ...


class StreamMethod(Protocol[RequestT, ResponseT]):
    """A method of a stub with one request and a stream of responses."""

    def __call__(
        self, request: RequestT, /, *, timeout: float | None = None, metadata: Metadata | None = None
    ) -> grpc.aio.UnaryStreamCall[RequestT, ResponseT]: ...


@dataclass(frozen=True)
class RetryPolicy:
    """The number of attempts at a call and the delays between them, after transient errors.

    A delay that the service requests replaces the computed delay.
    """

    attempts: int = 5
    """The maximum number of attempts, the first one included."""
    initial_delay: float = 0.5
    """Seconds before the second attempt."""
    max_delay: float = 5.0
    """Maximum number of seconds before an attempt."""
    multiplier: float = 2.0
    """The factor between one delay and the next."""

    def delay(self, failures: int, asked: float | None) -> float:
        """Returns the seconds to wait after this many failed attempts."""
        if asked is not None:
            return asked
        exponential = self.initial_delay * self.multiplier ** (failures - 1)
        return min(exponential, self.max_delay) * random.uniform(0.8, 1.2)


class Backoff:
    """Decides whether to try again after a transient error, and waits before the next attempt."""

    def __init__(self, policy: RetryPolicy, seconds: float | None = None) -> None:
        """Limits the attempts as the policy says. With `seconds`, limits the time since the first failure instead."""
        self._policy = policy
        self._seconds = seconds
        self._failures = 0
        self._since = 0.0

    def reset(self) -> None:
        """Forgets earlier failures."""
        self._failures = 0

    async def wait(self, error: ServiceError, at_most: float = float("inf")) -> None:
        """Waits before the next attempt. Raises the error if it is permanent or there is no further attempt."""
        if self._failures == 0:
            self._since = time.monotonic()
        self._failures += 1
        is_over = self._failures >= self._policy.attempts
        if self._seconds is not None:
            is_over = time.monotonic() - self._since >= self._seconds
        if is_over or not error.is_transient:
            raise error
        await asyncio.sleep(min(self._policy.delay(self._failures, error.retry_after), at_most))


class Caller:
    """A channel to the supervisor and the token of the caller."""

    def __init__(self, target: Target, policy: RetryPolicy) -> None:
        options = list(_OPTIONS)
        if target.credentials is None:
            self.channel = grpc.aio.insecure_channel(target.address, options=options)
        else:
            self.channel = grpc.aio.secure_channel(target.address, target.credentials, options=options)
        self.stub: AgentSupervisorServiceAsyncStub = AgentSupervisorServiceStub(self.channel)
        self.policy = policy
        self._token: Token = target.token
        # The token from the data directory that the service rejected. Empty: none was rejected. Calls do not send this
        # token.
        self._rejected = ""

    def metadata(self) -> Metadata:
        """Returns the metadata of a call."""
        token = self._token.expose()
        return (("authorization", f"Bearer {token}"),) if token and token != self._rejected else ()

    def _drops_token(self, error: ServiceError) -> bool:
        """Stops using a token from the data directory that the service rejected: it belongs to another service.

        Returns whether to repeat the call, now without the token.
        """
        token = self._token.expose()
        if error.code is not grpc.StatusCode.UNAUTHENTICATED or not self._token.is_found or token == self._rejected:
            return False
        self._rejected = token
        return True

    async def call(self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: float) -> ResponseT:
        """Makes a call, and repeats it with the same request id after a transient error.

        `timeout` is the deadline of each attempt, in seconds.
        """
        request = with_request_id(request)

        async def attempt() -> ResponseT:
            return await method(request, timeout=timeout, metadata=self.metadata())

        return await self._repeat(attempt, Backoff(self.policy))

    async def collect(
        self, method: StreamMethod[RequestT, ResponseT], request: RequestT, *, timeout: float
    ) -> list[ResponseT]:
        """Reads a whole stream. After a transient error, reads the stream again from the beginning."""

        async def attempt() -> list[ResponseT]:
            messages = cast(AsyncIterator[ResponseT], method(request, timeout=timeout, metadata=self.metadata()))
            return [message async for message in messages]

        return await self._repeat(attempt, Backoff(self.policy))

    async def _repeat(self, attempt: Callable[[], Awaitable[_AnswerT]], backoff: Backoff) -> _AnswerT:
        while True:
            try:
                return await attempt()
            except grpc.aio.AioRpcError as failure:
                await self.recover(failure, backoff)

    async def recover(
        self, failure: grpc.aio.AioRpcError, backoff: Backoff, at_most: float = float("inf")
    ) -> None:
        """Waits until the call can be repeated, at most `at_most` seconds. Raises the error if it cannot be repeated."""
        error = service_error(failure)
        if not self._drops_token(error):
            await backoff.wait(error, at_most)


_AnswerT = TypeVar("_AnswerT")


def with_request_id(request: RequestT) -> RequestT:
    """Returns the request with a new request id if its type has this field and the field is empty."""
    if "request_id" not in request.DESCRIPTOR.fields_by_name or getattr(request, "request_id"):
        return request
    copy = type(request)()
    copy.CopyFrom(request)
    setattr(copy, "request_id", str(uuid.uuid4()))
    return copy


def service_error(failure: grpc.aio.AioRpcError) -> ServiceError:
    """Converts an error of gRPC into an error of the class that belongs to its reason."""
    info, retry = ErrorInfo(), RetryInfo()
    reason, metadata, retry_after = "", {}, None
    for key, value in failure.trailing_metadata() or ():
        if key != _DETAILS or not isinstance(value, bytes):
            continue
        try:
            details = RpcStatus.FromString(value).details
        except DecodeError:
            continue
        for detail in details:
            if detail.Unpack(info) and info.domain == DOMAIN:
                reason, metadata = info.reason, dict(info.metadata)
            elif detail.Unpack(retry):
                retry_after = retry.retry_delay.ToTimedelta().total_seconds()
    if not reason and failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        # This process ended the call at its deadline. The error means the same as the service's own error.
        kind = BY_REASON["DEADLINE_EXCEEDED"]
    else:
        kind = BY_REASON.get(reason, ServiceError)
    return kind(
        failure.details() or "no details",
        code=failure.code(),
        reason=reason,
        metadata=metadata,
        retry_after=retry_after,
    )
