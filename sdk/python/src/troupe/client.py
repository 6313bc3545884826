"""The asynchronous client. `troupe.sync` has the same classes for programs without an event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from ._config import find
from ._event import ApprovalEvent, Event, UnknownEvent
from ._reasons import ThreadNotFoundError
from ._results import Item, Model, Parsed, Row, Schema, schema_text
from ._rpc import Backoff, Caller, Method, RequestT, ResponseT, RetryPolicy
from .errors import AgentClosedError, AgentError, AgentFailedError, AgentInterruptedError, TroupeError
from .events import BY_KIND
from .supervisor.v1 import group_pb2, session_pb2, supervisor_pb2, thread_pb2, transcript_pb2

if TYPE_CHECKING:
    # Only the type stub defines this class.
    from .supervisor.v1.supervisor_pb2_grpc import AgentSupervisorServiceAsyncStub

_LOG = logging.getLogger("troupe")
# Deadlines in seconds, as in proto/service-config.json.
_TIMEOUT = 30.0
_SPAWN_TIMEOUT = 150.0
_CLOSE_TIMEOUT = 45.0
_CONTENT_TIMEOUT = 600.0
# The waiting time of one WaitAgents call.
_WAIT = 300.0
# The time by which the deadline of the call exceeds its waiting time.
_WAIT_MARGIN = 5.0
# The time before a stream that ended as planned is opened again.
_REOPEN_DELAY = 0.2
# The maximum number of threads that WaitAgents accepts.
_MAX_WAITED = 1000
_PAGE = 1000

PathLike = str | os.PathLike[str]
_ENDED = (group_pb2.GROUP_STATE_SUCCEEDED, group_pb2.GROUP_STATE_FAILED, group_pb2.GROUP_STATE_CANCELLED)


class JoinPolicy(str, Enum):
    """The treatment of the other items of `Session.map` when more items have failed than are tolerated."""

    CONTINUE = "continue"
    """The other items still run."""
    CANCEL_REST = "cancel_rest"
    """The other items are cancelled."""

    def proto(self) -> group_pb2.GroupFailurePolicy.ValueType:
        """Returns the value of the API."""
        if self is JoinPolicy.CONTINUE:
            return group_pb2.GROUP_FAILURE_POLICY_CONTINUE
        return group_pb2.GROUP_FAILURE_POLICY_CANCEL_REST


@dataclass(frozen=True)
class Budget:
    """Limits on the usage of a thread and its descendants. 0 means unlimited."""

    tokens: int = 0
    """Input and output tokens."""
    turns: int = 0
    """Turns. A turn counts when it has ended."""
    wall_time: float | timedelta = 0
    """The time in running turns: seconds, or a timedelta."""
    cost: float = 0
    """The cost, in the currency of the supervisor's price list."""

    def proto(self) -> thread_pb2.Budget:
        """Returns the message of the API."""
        seconds = self.wall_time.total_seconds() if isinstance(self.wall_time, timedelta) else self.wall_time
        wall_time = _duration(seconds) if seconds else None
        cost_micros = round(self.cost * 1_000_000)
        return thread_pb2.Budget(tokens=self.tokens, turns=self.turns, wall_time=wall_time, cost_micros=cost_micros)


@dataclass(frozen=True)
class Result:
    """The status with which a thread settled, and its last message."""

    thread_id: str
    """The id of the settled thread."""
    text: str
    """The last message (COMPLETED) or the error (ERRORED), in full."""
    status: thread_pb2.Status
    """The whole status, with its reason and time."""
    document: str = ""
    """The result that the schema requires, a JSON document; empty: none."""

    @property
    def value(self) -> Any:
        """The result that the schema requires, as Python objects; None without a result."""
        return json.loads(self.document) if self.document else None

    def parse(self, model: Model[Parsed]) -> Parsed:
        """Returns the result as an object of the model. Raises the error of the model if there is no result."""
        return model.model_validate(self.value)

    @property
    def kind(self) -> str:
        """COMPLETED, ERRORED, INTERRUPTED or SHUTDOWN."""
        return thread_pb2.StatusKind.Name(self.status.kind).removeprefix("STATUS_KIND_")

    @property
    def is_completed(self) -> bool:
        """Whether the last turn of the thread completed."""
        return self.status.kind == thread_pb2.STATUS_KIND_COMPLETED

    def raise_for_status(self) -> None:
        """Raises an AgentError unless the thread is COMPLETED."""
        if not self.is_completed:
            raise _AGENT_ERRORS.get(self.status.kind, AgentError)(self)


_AGENT_ERRORS: Mapping[int, type[AgentError]] = {
    thread_pb2.STATUS_KIND_ERRORED: AgentFailedError,
    thread_pb2.STATUS_KIND_INTERRUPTED: AgentInterruptedError,
    thread_pb2.STATUS_KIND_SHUTDOWN: AgentClosedError,
}


def connect(
    address: str | None = None,
    *,
    context: str | None = None,
    token: str | None = None,
    token_file: PathLike | None = None,
    data_dir: PathLike | None = None,
    ca: PathLike | None = None,
    client_cert: PathLike | None = None,
    client_key: PathLike | None = None,
    retry: RetryPolicy = RetryPolicy(),
    reconnect_timeout: float | None = 300.0,
) -> Client:
    """Returns a client of the supervisor. Without arguments, it finds address and token as the `troupe` command does.

    `context` names a context of `troupe context`.
    The client connects with the first call, and again whenever the connection is lost. `retry` applies to calls.
    `reconnect_timeout` is the time in seconds that `result` and `events` wait for a supervisor that is unreachable; None
    means without limit. Use the client with `async with`.

    Raises ConfigError if an address, a context, a token file or a certificate is invalid.
    """
    target = find(
        address,
        token,
        context=context,
        token_file=token_file,
        data_dir=data_dir,
        ca=ca,
        client_cert=client_cert,
        client_key=client_key,
    )
    return Client(lambda: Caller(target, retry), reconnect_timeout)


class Client:
    """A connection to a supervisor. `connect` creates it."""

    def __init__(self, make_caller: Callable[[], Caller], reconnect_timeout: float | None) -> None:
        self._make_caller = make_caller
        self._open: Caller | None = None
        self._reconnect_timeout = float("inf") if reconnect_timeout is None else reconnect_timeout

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection. Sessions and threads stay open."""
        if self._open is not None:
            await self._open.channel.close()

    @property
    def stub(self) -> AgentSupervisorServiceAsyncStub:
        """The generated stub, for methods and fields that this class does not have. Pass its methods to `call`."""
        return self._caller.stub

    async def call(
        self, method: Method[RequestT, ResponseT], request: RequestT, *, timeout: float = _TIMEOUT
    ) -> ResponseT:
        """Makes a call with the caller's token, a request id and retries: `await client.call(client.stub.GetQuota, …)`.

        `timeout` is the deadline of each attempt, in seconds.
        """
        return await self._caller.call(method, request, timeout=timeout)

    def session(
        self,
        *,
        cwd: PathLike | None = None,
        budget: Budget | None = None,
        labels: Mapping[str, str] | None = None,
        runner_labels: Mapping[str, str] | None = None,
        approve_tools: Sequence[str] = (),
        max_threads: int | None = None,
        max_depth: int | None = None,
        request: supervisor_pb2.CreateSessionRequest | None = None,
    ) -> OpeningSession:
        """Opens a session whose root thread is this program.

        `async with client.session() as session` closes the session at the end of the block; `await client.session()`
        leaves it open. A relative `cwd` is relative to the working directory. `request` sets the fields that have no
        parameter.
        """
        made = supervisor_pb2.CreateSessionRequest()
        if request is not None:
            made.CopyFrom(request)
        if cwd is not None:
            made.cwd = os.path.abspath(cwd)
        if budget is not None:
            made.budget.CopyFrom(budget.proto())
        if max_threads is not None:
            made.limits.max_threads = max_threads
        if max_depth is not None:
            made.limits.max_depth = max_depth
        made.labels.update(labels or {})
        made.runner_labels.update(runner_labels or {})
        made.approve_tools.extend(approve_tools)
        return OpeningSession(self, made)

    async def get_session(self, session_id: str) -> Session:
        """Returns an existing session."""
        request = supervisor_pb2.GetSessionRequest(session_id=session_id)
        return Session(self, (await self.call(self.stub.GetSession, request)).session)

    async def sessions(
        self, *, labels: Mapping[str, str] | None = None, include_closed: bool = False
    ) -> list[session_pb2.Session]:
        """Lists the sessions that have all of these labels, newest first."""
        request = supervisor_pb2.ListSessionsRequest(labels=labels, include_closed=include_closed, page_size=_PAGE)
        found: list[session_pb2.Session] = []
        while True:
            answer = await self.call(self.stub.ListSessions, request)
            found.extend(answer.sessions)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return found

    @property
    def _caller(self) -> Caller:
        # The channel belongs to the event loop that is running at the first use.
        if self._open is None:
            self._open = self._make_caller()
        return self._open


class OpeningSession:
    """A session that is opened by `async with` or by `await`."""

    def __init__(self, client: Client, request: supervisor_pb2.CreateSessionRequest) -> None:
        self._client = client
        self._request = request
        self._session: Session | None = None

    def __await__(self) -> Generator[object, None, Session]:
        return self._create().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._create()
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.__aexit__(kind, error, trace)

    async def _create(self) -> Session:
        client = self._client
        answer = await client.call(client.stub.CreateSession, self._request, timeout=_SPAWN_TIMEOUT)
        return Session(client, answer.session, answer.thread_token)


class Session:
    """A session: a tree of threads below a root thread."""

    def __init__(self, client: Client, proto: session_pb2.Session, thread_token: str = "") -> None:
        self._client = client
        self._streams: set[EventStream] = set()
        self.id: str = proto.session_id
        """The id of the session, a UUID."""
        self.root_id: str = proto.root_thread_id
        """The thread at depth 0."""
        self.thread_token: str = thread_token
        """The token of the root thread; empty for a session that this client did not open."""

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close()
        except TroupeError as failure:
            # The caller must see the error of the block.
            _LOG.warning("cannot close session %s: %s", self.id, failure)

    async def close(self, *, wait: bool = True) -> None:
        """Closes the streams of this object, the root thread and all its descendants. Waits until they are closed."""
        for stream in tuple(self._streams):
            await stream.close()
        request = supervisor_pb2.CloseSessionRequest(session_id=self.id, wait=wait)
        await self._client.call(self._client.stub.CloseSession, request, timeout=_CLOSE_TIMEOUT)

    async def info(self) -> session_pb2.Session:
        """Reads the session."""
        request = supervisor_pb2.GetSessionRequest(session_id=self.id)
        return (await self._client.call(self._client.stub.GetSession, request)).session

    async def quota(self) -> session_pb2.Quota:
        """Reads limits and budgets with their current usage."""
        request = supervisor_pb2.GetQuotaRequest(session_id=self.id)
        return (await self._client.call(self._client.stub.GetQuota, request)).quota

    async def set_budget(self, budget: Budget) -> None:
        """Replaces the budget of the whole session."""
        request = supervisor_pb2.UpdateSessionRequest(session_id=self.id, budget=budget.proto())
        await self._client.call(self._client.stub.UpdateSession, request)

    async def pause(self, paused: bool = True) -> None:
        """Stops new turns and spawns, or lets them start again. Running turns finish."""
        request = supervisor_pb2.UpdateSessionRequest(session_id=self.id, paused=paused)
        await self._client.call(self._client.stub.UpdateSession, request)

    async def spawn(
        self,
        agent_type: str,
        message: str,
        *,
        parent: Thread | str | None = None,
        agent_name: str = "",
        alias: str = "",
        label: str = "",
        model: str = "",
        reasoning_effort: str = "",
        working_directory: str = "",
        budget: Budget | None = None,
        schema: Schema | None = None,
        queue: bool = False,
        request: supervisor_pb2.SpawnAgentRequest | None = None,
    ) -> Thread:
        """Spawns a thread. Returns when the spawn is durable, not when the work is done.

        Without `parent` the thread is a child of the root. With `schema` the result has a document that matches it: a JSON
        Schema, or a model such as one of pydantic. With `queue` the spawn waits for a slot instead of failing with
        ThreadLimitError. `request` sets the fields that have no parameter.
        """
        made = supervisor_pb2.SpawnAgentRequest()
        if request is not None:
            made.CopyFrom(request)
        made.session_id = self.id
        made.message = message
        given = {
            "agent_type": agent_type,
            "parent_thread_id": _id(parent) if parent else "",
            "agent_name": agent_name,
            "alias": alias,
            "label": label,
            "model": model,
            "reasoning_effort": reasoning_effort,
            "working_directory": working_directory,
            "result_schema": schema_text(schema),
        }
        for field, value in given.items():
            if value:
                setattr(made, field, value)
        if budget is not None:
            made.budget.CopyFrom(budget.proto())
        if queue:
            made.on_limit = thread_pb2.ON_LIMIT_QUEUE
        answer = await self._client.call(self._client.stub.SpawnAgent, made, timeout=_SPAWN_TIMEOUT)
        return Thread(self, answer.thread.thread_id)

    async def map(
        self,
        agent_type: str,
        items: Iterable[Item],
        message: str,
        *,
        limit: int = 8,
        schema: Schema | None = None,
        retries: int = 0,
        tolerated_failures: int = 0,
        on_failure: JoinPolicy = JoinPolicy.CONTINUE,
        budget: Budget | None = None,
        timeout: float | None = None,
        request: supervisor_pb2.CreateGroupRequest | None = None,
    ) -> list[Row]:
        """Spawns a thread for each item, at most `limit` at a time. Returns the items with their results, in order.

        `{item}` in `message` stands for an item that is a string, and `{name}` for a value of an item that is a mapping.
        `retries` is the maximum number of retries of a failed item. When more than `tolerated_failures` items have failed,
        `on_failure` decides about the others. `budget` limits all items together. The group is durable: it continues if
        this call is cancelled or times out. `request` sets the fields that have no parameter, such as the template of the
        spawns. Raises TimeoutError after `timeout` seconds.
        """
        made = supervisor_pb2.CreateGroupRequest()
        if request is not None:
            made.CopyFrom(request)
        given = list(items)
        made.session_id = self.id
        made.template.message = message
        if agent_type:
            made.template.agent_type = agent_type
        if schema is not None:
            made.template.result_schema = schema_text(schema)
        for index, item in enumerate(given):
            variables = {"item": item} if isinstance(item, str) else item
            made.items.add(key=str(index), variables=variables)
        made.max_concurrency = limit
        made.retries = retries
        made.tolerated_failures = tolerated_failures
        made.on_failure = on_failure.proto()
        if budget is not None:
            made.budget.CopyFrom(budget.proto())
        answer = await self._client.call(self._client.stub.CreateGroup, made, timeout=_SPAWN_TIMEOUT)
        await self._end_of_group(answer.group, timeout)
        return [await self._row(given[status.index], status) async for status in self._group_items(answer.group)]

    def thread(self, thread_id: str) -> Thread:
        """Returns the thread with this id, without a call."""
        return Thread(self, thread_id)

    async def threads(self, *, include_closed: bool = False) -> list[thread_pb2.Thread]:
        """Lists the threads below the root in spawn order."""
        request = supervisor_pb2.ListActiveAgentsRequest(
            session_id=self.id, include_closed=include_closed, page_size=_PAGE
        )
        found: list[thread_pb2.Thread] = []
        while True:
            answer = await self._client.call(self._client.stub.ListActiveAgents, request)
            found.extend(answer.threads)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return found

    async def wait_all(self, threads: Iterable[Thread | str], *, timeout: float | None = None) -> list[Result]:
        """Waits until every thread is settled. Returns the results in the order of the threads, failed ones included.

        Raises TimeoutError after `timeout` seconds.
        """
        ids = [_id(thread) for thread in threads]
        results = {result.thread_id: result async for result in self.as_completed(ids, timeout=timeout)}
        return [results[thread] for thread in ids]

    async def as_completed(
        self, threads: Iterable[Thread | str], *, timeout: float | None = None
    ) -> AsyncIterator[Result]:
        """Yields the result of each thread when it settles, failed ones included.

        Raises TimeoutError after `timeout` seconds.
        """
        client = self._client
        waiting = list(dict.fromkeys(_id(thread) for thread in threads))
        until = float("inf") if timeout is None else time.monotonic() + timeout
        backoff = Backoff(client._caller.policy, client._reconnect_timeout)
        while waiting:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{len(waiting)} threads are not settled after {timeout} s")
            try:
                settled = await self._wait(waiting[:_MAX_WAITED], min(left, _WAIT))
            except grpc.aio.AioRpcError as failure:
                # An expired deadline is not an error: the loop checks the remaining time.
                if failure.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    await client._caller.recover(failure, backoff, left)
                continue
            backoff.reset()
            for entry in settled:
                waiting.remove(entry.thread_id)
                yield await self._result(entry)

    def events(self, *, after: int = 0) -> EventStream:
        """Follows the events of the session after the sequence number `after`; 0: from the beginning.

        The iterator resumes after a lost connection and after a restart of the supervisor. It ends with the event
        SessionClosed. It raises HistoryCompactedError if the supervisor no longer has the events after `after`.
        """
        stream = EventStream(self, after)
        self._streams.add(stream)
        return stream

    async def approvals(self, *, include_resolved: bool = False) -> list[Approval]:
        """Lists the approvals that wait for a decision, oldest first."""
        request = supervisor_pb2.ListApprovalsRequest(
            session_id=self.id, include_resolved=include_resolved, page_size=_PAGE
        )
        found: list[Approval] = []
        while True:
            answer = await self._client.call(self._client.stub.ListApprovals, request)
            found.extend(Approval(self, approval) for approval in answer.approvals)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return found

    async def grant(self, approval_id: str, reason: str = "") -> Approval:
        """Grants a request. A decision is final."""
        return await self._resolve(approval_id, True, reason)

    async def deny(self, approval_id: str, reason: str = "") -> Approval:
        """Denies a request. A denial affects this request only."""
        return await self._resolve(approval_id, False, reason)

    async def artifacts(self, *, thread: Thread | str | None = None) -> list[Artifact]:
        """Lists the artifacts of the session or of one thread, oldest first."""
        request = supervisor_pb2.ListArtifactsRequest(
            session_id=self.id, thread_id=_id(thread) if thread else "", page_size=_PAGE
        )
        found: list[Artifact] = []
        while True:
            answer = await self._client.call(self._client.stub.ListArtifacts, request)
            found.extend(Artifact(self, artifact) for artifact in answer.artifacts)
            request.page_token = answer.next_page_token
            if not request.page_token:
                return found

    async def content(self, digest: str) -> bytes:
        """Reads stored content by its SHA-256 digest: an artifact, a long message or an approval's tool call."""
        request = supervisor_pb2.GetContentRequest(session_id=self.id, digest=digest)
        parts = await self._client._caller.collect(self._client.stub.GetContent, request, timeout=_CONTENT_TIMEOUT)
        return b"".join(part.data for part in parts)

    async def _resolve(self, approval_id: str, grant: bool, reason: str) -> Approval:
        request = supervisor_pb2.ResolveApprovalRequest(
            session_id=self.id, approval_id=approval_id, grant=grant, reason=reason
        )
        return Approval(self, (await self._client.call(self._client.stub.ResolveApproval, request)).approval)

    async def _wait(self, threads: Sequence[str], seconds: float) -> Sequence[supervisor_pb2.ThreadStatus]:
        """Waits for the first of the threads to settle. Returns an empty sequence when the time is over."""
        request = supervisor_pb2.WaitAgentsRequest(
            session_id=self.id, thread_ids=threads, timeout=_duration(max(seconds, 0.001))
        )
        metadata = self._client._caller.metadata()
        answer = await self._client.stub.WaitAgents(request, timeout=seconds + _WAIT_MARGIN, metadata=metadata)
        if answer.not_found_ids:
            missing = answer.not_found_ids[0]
            raise ThreadNotFoundError(
                f"agent with id {missing} not found",
                code=grpc.StatusCode.NOT_FOUND,
                reason="THREAD_NOT_FOUND",
                metadata={"thread_id": missing},
            )
        return answer.statuses

    async def _result(self, entry: supervisor_pb2.ThreadStatus) -> Result:
        text = entry.status.message
        if entry.status.HasField("content"):
            text = (await self.content(entry.status.content.digest)).decode(errors="replace")
        document = await self._document(entry.result) if entry.HasField("result") else ""
        return Result(entry.thread_id, text, entry.status, document)

    async def _document(self, result: thread_pb2.ThreadResult) -> str:
        """Returns the document of a result. A long document is read as content."""
        return result.document_json or (await self.content(result.content.digest)).decode()

    async def _end_of_group(self, group: group_pb2.Group, timeout: float | None) -> None:
        """Waits for the end of a group."""
        client = self._client
        until = float("inf") if timeout is None else time.monotonic() + timeout
        backoff = Backoff(client._caller.policy, client._reconnect_timeout)
        request = supervisor_pb2.GetGroupRequest(session_id=self.id, group_id=group.spec.group_id)
        while group.state not in _ENDED:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"group {request.group_id} has not ended after {timeout} s")
            seconds = min(left, _WAIT)
            request.wait.CopyFrom(_duration(max(seconds, 0.001)))
            metadata = client._caller.metadata()
            try:
                answer = await client.stub.GetGroup(request, timeout=seconds + _WAIT_MARGIN, metadata=metadata)
            except grpc.aio.AioRpcError as failure:
                # An expired deadline is not an error: the loop checks the remaining time.
                if failure.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    await client._caller.recover(failure, backoff, left)
                continue
            backoff.reset()
            group = answer.group

    async def _group_items(self, group: group_pb2.Group) -> AsyncIterator[group_pb2.GroupItemStatus]:
        client = self._client
        request = supervisor_pb2.ListGroupItemsRequest(
            session_id=self.id, group_id=group.spec.group_id, page_size=_PAGE
        )
        while True:
            answer = await client.call(client.stub.ListGroupItems, request)
            for item in answer.items:
                yield item
            request.page_token = answer.next_page_token
            if not request.page_token:
                return

    async def _row(self, item: Item, status: group_pb2.GroupItemStatus) -> Row:
        document = await self._document(status.result) if status.HasField("result") else ""
        return Row(item, document, status.message, status.error, status.thread_id, status)


class Thread:
    """A thread of a session."""

    def __init__(self, session: Session, thread_id: str) -> None:
        self._session = session
        self.id: str = thread_id
        """The id of the thread, a UUID."""

    async def info(self) -> thread_pb2.Thread:
        """Reads the thread."""
        client = self._session._client
        request = supervisor_pb2.GetThreadRequest(session_id=self._session.id, thread_id=self.id)
        return (await client.call(client.stub.GetThread, request)).thread

    async def spawn(
        self,
        agent_type: str,
        message: str,
        *,
        agent_name: str = "",
        alias: str = "",
        label: str = "",
        model: str = "",
        reasoning_effort: str = "",
        working_directory: str = "",
        budget: Budget | None = None,
        schema: Schema | None = None,
        queue: bool = False,
        request: supervisor_pb2.SpawnAgentRequest | None = None,
    ) -> Thread:
        """Spawns a child of this thread. The parameters are those of `Session.spawn`."""
        return await self._session.spawn(
            agent_type,
            message,
            parent=self,
            agent_name=agent_name,
            alias=alias,
            label=label,
            model=model,
            reasoning_effort=reasoning_effort,
            working_directory=working_directory,
            budget=budget,
            schema=schema,
            queue=queue,
            request=request,
        )

    async def send(
        self,
        message: str,
        *,
        schema: Schema | None = None,
        interrupt: bool = False,
        steer: bool = False,
        queue: bool = False,
    ) -> int:
        """Sends input. A settled thread starts a new turn. Returns the number of the input in the thread.

        A running thread receives it with its next turn; with `interrupt` the running turn stops first; with `steer` it is
        delivered within the running turn if the program accepts that. `schema` is as in `Session.spawn`.
        """
        client = self._session._client
        request = supervisor_pb2.SendInputRequest(
            session_id=self._session.id,
            thread_id=self.id,
            message=message,
            result_schema=schema_text(schema),
            interrupt=interrupt,
            steer=steer,
            on_limit=thread_pb2.ON_LIMIT_QUEUE if queue else thread_pb2.ON_LIMIT_UNSPECIFIED,
        )
        return (await client.call(client.stub.SendInput, request)).input_number

    async def interrupt(self, reason: str = "", *, only_this: bool = False) -> list[str]:
        """Stops the running turns of the thread and its descendants. Returns the ids of the interrupted threads."""
        client = self._session._client
        request = supervisor_pb2.InterruptAgentRequest(
            session_id=self._session.id, thread_id=self.id, reason=reason, only_this=only_this
        )
        return list((await client.call(client.stub.InterruptAgent, request)).interrupted_thread_ids)

    async def close(self, *, wait: bool = True, reason: str = "") -> None:
        """Closes the thread and its descendants, leaf first."""
        client = self._session._client
        request = supervisor_pb2.CloseAgentRequest(
            session_id=self._session.id, thread_id=self.id, wait=wait, reason=reason
        )
        await client.call(client.stub.CloseAgent, request, timeout=_CLOSE_TIMEOUT)

    async def resume(self) -> None:
        """Opens the closed thread again."""
        client = self._session._client
        request = supervisor_pb2.ResumeAgentRequest(session_id=self._session.id, thread_id=self.id)
        await client.call(client.stub.ResumeAgent, request)

    async def set_budget(self, budget: Budget) -> None:
        """Replaces the budget of the thread and its descendants."""
        client = self._session._client
        request = supervisor_pb2.UpdateThreadBudgetRequest(
            session_id=self._session.id, thread_id=self.id, budget=budget.proto()
        )
        await client.call(client.stub.UpdateThreadBudget, request)

    async def result(self, timeout: float | None = None) -> Result:
        """Waits until the thread is settled. Raises an AgentError unless it is COMPLETED.

        Raises TimeoutError after `timeout` seconds.
        """
        (result,) = await self._session.wait_all([self], timeout=timeout)
        result.raise_for_status()
        return result

    async def artifacts(self) -> list[Artifact]:
        """Lists the artifacts of the thread, oldest first."""
        return await self._session.artifacts(thread=self)

    async def transcript(
        self, *, after: int = 0, follow: bool = False
    ) -> AsyncIterator[transcript_pb2.TranscriptEntry]:
        """Yields the entries of the thread's transcript after the number `after`, oldest first.

        With `follow` it continues with new entries until the thread is closed, and resumes after a lost connection and
        after a restart of the supervisor. A text of more than 16 KiB is content: read it with `Session.content`.
        """
        client = self._session._client
        if not follow:
            request = supervisor_pb2.ListTranscriptRequest(
                session_id=self._session.id, thread_id=self.id, after_number=after, page_size=_PAGE
            )
            while True:
                page = await client.call(client.stub.ListTranscript, request)
                for entry in page.entries:
                    yield entry
                request.page_token = page.next_page_token
                if not request.page_token:
                    return
        backoff = Backoff(client._caller.policy, client._reconnect_timeout)
        while True:
            watch = supervisor_pb2.WatchTranscriptRequest(
                session_id=self._session.id, thread_id=self.id, after_number=after
            )
            call = client.stub.WatchTranscript(watch, metadata=client._caller.metadata())
            try:
                async for message in call:
                    backoff.reset()
                    for entry in message.entries:
                        after = entry.number
                        yield entry
                    after = max(after, message.number)
                    if message.closed:
                        return
            except grpc.aio.AioRpcError as failure:
                await client._caller.recover(failure, backoff)
                continue
            finally:
                call.cancel()
            # The supervisor ends each stream after a while.
            await asyncio.sleep(_REOPEN_DELAY)

    def __repr__(self) -> str:
        return f"<Thread {self.id}>"


class Approval:
    """A request for an operator's decision, which is pending or decided."""

    def __init__(self, session: Session, proto: supervisor_pb2.Approval) -> None:
        self._session = session
        self.id: str = proto.approval_id
        """The id of the approval, a UUID."""
        self.proto: supervisor_pb2.Approval = proto
        """The whole approval: its subject, its deadline, its decision."""

    async def grant(self, reason: str = "") -> Approval:
        """Grants the request."""
        return await self._session.grant(self.id, reason)

    async def deny(self, reason: str = "") -> Approval:
        """Denies the request. A denial affects this request only."""
        return await self._session.deny(self.id, reason)


class Artifact:
    """A file or text that a thread produced, such as a diff or a report."""

    def __init__(self, session: Session, proto: supervisor_pb2.Artifact) -> None:
        self._session = session
        self.name: str = proto.name
        """The name that the agent gave it, such as `report.md`."""
        self.kind: str = proto.kind
        """`diff`, `report`, `group-results` or another kind."""
        self.proto: supervisor_pb2.Artifact = proto
        """The whole artifact: its media type, size and digest, its thread and turn."""

    async def read(self) -> bytes:
        """Reads the bytes of the artifact."""
        return await self._session.content(self.proto.content.digest)


class EventStream:
    """The events of a session in order, each exactly once. `Session.events` creates it.

    A cancelled `anext` loses no event: the position advances only when an event is returned.
    """

    def __init__(self, session: Session, after: int) -> None:
        self._session = session
        self._call: grpc.aio.UnaryStreamCall[
            supervisor_pb2.WatchThreadsRequest, supervisor_pb2.WatchThreadsResponse
        ] | None = None
        self._is_started = False
        self._is_over = False
        self.position: int = after
        """The sequence number of the last event. A program that outlives its process stores it and passes it as `after`."""

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        caller = self._session._client._caller
        backoff = Backoff(caller.policy, self._session._client._reconnect_timeout)
        if not self._is_started and self.position and await self._has_ended():
            await self.close()
        self._is_started = True
        while not self._is_over:
            call = self._call or self._watch()
            try:
                # The end of the stream is an object that is false; a message is never false.
                message = cast("supervisor_pb2.WatchThreadsResponse | None", (await call.read()) or None)
            except asyncio.CancelledError:
                # A cancelled read also cancels the stream. The next call of `anext` opens it again.
                self._call = None
                if self._is_over:
                    break
                raise
            except grpc.aio.AioRpcError as failure:
                self._call = None
                await caller.recover(failure, backoff)
                continue
            if message is None:
                # The supervisor ends each stream after a while.
                self._call = None
                await asyncio.sleep(_REOPEN_DELAY)
                continue
            backoff.reset()
            if message.HasField("reset"):
                await self.close()
                raise TroupeError(f"the events of session {self._session.id} do not continue: {message.reset.reason}")
            if message.HasField("event") and message.event.sequence > self.position:
                self.position = message.event.sequence
                return await self._deliver(message)
            self.position = max(self.position, message.sequence)
        raise StopAsyncIteration

    async def close(self) -> None:
        """Ends the stream. A pending `anext` raises StopAsyncIteration."""
        self._is_over = True
        self._session._streams.discard(self)
        if self._call is not None:
            self._call.cancel()
            self._call = None

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _watch(
        self,
    ) -> grpc.aio.UnaryStreamCall[supervisor_pb2.WatchThreadsRequest, supervisor_pb2.WatchThreadsResponse]:
        client = self._session._client
        request = supervisor_pb2.WatchThreadsRequest(session_id=self._session.id, after_sequence=self.position)
        # Without a deadline: an idle session has no events.
        self._call = client.stub.WatchThreads(request, metadata=client._caller.metadata())
        return self._call

    async def _deliver(self, message: supervisor_pb2.WatchThreadsResponse) -> Event:
        event = BY_KIND.get(message.event.WhichOneof("kind") or "", UnknownEvent)(message.event)
        if isinstance(event, ApprovalEvent):
            event._bind(self._session)
        if message.event.HasField("session_closed"):
            await self.close()
        return event

    async def _has_ended(self) -> bool:
        """Returns whether the session is closed and its last event is not after the position."""
        session = await self._session.info()
        return session.closed and session.sequence <= self.position


def _id(thread: Thread | str) -> str:
    return thread if isinstance(thread, str) else thread.id


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return duration
