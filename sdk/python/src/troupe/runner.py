"""Executes threads with Python functions.

    @agent("reviewer")
    async def review(task: Task) -> str:
        return f"I have read: {task.message}"

    asyncio.run(serve(review, labels={"language": "python"}))

A session with `runner_labels={"language": "python"}` gives its threads to this runner. The function is called for each turn,
and its result is the last message of the turn. An exception ends the turn as ERRORED; an interrupt cancels the function.
The transcript has the inputs, the authorized calls and the result of each turn; `Task.record` adds other entries.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration

from ._rpc import Backoff, Caller
from .client import Client, connect
from .supervisor.v1 import event_pb2, runner_pb2, thread_pb2, transcript_pb2
from .supervisor.v1.runner_pb2_grpc import ThreadRunnerServiceStub

if TYPE_CHECKING:
    from .supervisor.v1.runner_pb2_grpc import ThreadRunnerServiceAsyncStub

Function = Callable[["Task"], Awaitable[str]]
# The kinds of entries that a function can add to the transcript of its thread.
Kind = Literal["message", "reasoning", "tool_result", "error", "notice"]
_KINDS: Mapping[Kind, transcript_pb2.TranscriptKind.ValueType] = {
    "message": transcript_pb2.TRANSCRIPT_KIND_MESSAGE,
    "reasoning": transcript_pb2.TRANSCRIPT_KIND_REASONING,
    "tool_result": transcript_pb2.TRANSCRIPT_KIND_TOOL_RESULT,
    "error": transcript_pb2.TRANSCRIPT_KIND_ERROR,
    "notice": transcript_pb2.TRANSCRIPT_KIND_NOTICE,
}
_Attempt = tuple[str, int]
# The maximum size of an artifact.
_MAX_ARTIFACT = 16 * 1024 * 1024
# The maximum size of the data in one report.
_MAX_PIECE = 3 * 1024 * 1024
# The maximum length of an entry's text.
_MAX_TEXT = 1024 * 1024
# The maximum number of entries of an attempt that wait for their acknowledgement.
_MAX_ENTRIES = 1000
# The time before the runner attaches again.
_ATTACH_DELAY = 0.2


@dataclass(frozen=True)
class Agent:
    """A function that executes threads. `agent` creates it."""

    function: Function
    """Executes a turn and returns its last message."""
    roles: frozenset[str]
    """The roles whose threads the function executes. Empty: all roles."""


def agent(*roles: str) -> Callable[[Function], Agent]:
    """Makes a function execute the threads of these roles. Without a role, it executes the threads of all roles."""
    return lambda function: Agent(function, frozenset(roles))


@dataclass(frozen=True)
class Decision:
    """The decision on a tool call."""

    allowed: bool
    """Whether the tool may run."""
    reason: str
    """Why the call is denied, for the agent."""


class Task:
    """One turn of a thread."""

    def __init__(self, program: _Program, turn: runner_pb2.Turn) -> None:
        self._program = program
        start = program.start
        self.thread_id: str = start.thread_id
        """The id of the thread, a UUID."""
        self.session_id: str = start.session_id
        """The id of the thread's session, a UUID."""
        self.agent_type: str = start.resolved.agent_type
        """The role of the thread."""
        self.working_directory: str = start.working_directory
        """The absolute path of the directory in which the agent works."""
        self.turn: int = turn.turn
        """The number of the turn in the thread, from 1."""
        self.message: str = "\n".join(
            item.text for given in turn.inputs for item in given.items if item.HasField("text")
        )
        """The text of the inputs. It is empty if mail started the turn; the prompt then has the mail."""
        self.prompt: str = "\n\n".join(block.text for block in turn.blocks if block.text.strip())
        """The blocks of the prompt that are not blank. Later turns have only the blocks that changed."""
        self.state: dict[str, Any] = program.state
        """Values that the function keeps for later turns. A new attempt at the thread starts without them."""
        self.start = start
        """The whole command that started the thread."""
        self.proto = turn
        """The whole turn."""

    def connect(self) -> Client:
        """Returns a client that acts as this thread. The client can see and spawn threads below this thread only."""
        return connect(self.start.supervisor_url, token=self.start.thread_token)

    def activity(self, text: str) -> None:
        """Shows what the agent does now, in one line. The line is lost if the supervisor is unreachable."""
        self._program.runner.send_telemetry(self.start, text)

    def usage(self, *, input_tokens: int = 0, output_tokens: int = 0, cached_input_tokens: int = 0) -> None:
        """Adds to the usage of the thread. The usage is reported at the end of the turn."""
        usage = self._program.usage
        usage.input_tokens += input_tokens
        usage.output_tokens += output_tokens
        usage.cached_input_tokens += cached_input_tokens

    def artifact(self, name: str, data: bytes, *, kind: str = "report", media_type: str = "text/plain") -> None:
        """Stores an artifact of at most 16 MiB. The artifact is durable at the latest when the turn has ended."""
        if len(data) > _MAX_ARTIFACT:
            raise ValueError(f"the artifact {name} has {len(data)} bytes, more than {_MAX_ARTIFACT}")
        # The pieces are consecutive reports: no other report may come between them.
        for offset in range(0, max(len(data), 1), _MAX_PIECE):
            piece = runner_pb2.ArtifactReport(
                turn=self.turn,
                name=name,
                kind=kind,
                media_type=media_type,
                data=data[offset : offset + _MAX_PIECE],
                append=offset > 0,
                more=offset + _MAX_PIECE < len(data),
            )
            self._program.report(artifact=piece)

    def record(self, kind: Kind, text: str) -> None:
        """Adds an entry to the transcript of the thread. The entry is durable at the latest when the turn has ended."""
        self._program.record(transcript_pb2.TranscriptEntry(turn=self.turn, kind=_KINDS[kind], text=text))

    async def authorize(
        self, tool: str, arguments: Mapping[str, Any] | None = None, *, paths: Sequence[str] = ()
    ) -> Decision:
        """Asks whether the thread may use a tool. Waits for an operator if the call needs an approval.

        `paths` are the absolute paths that the call would write. If the runner declares `enforces_tools`, call this
        method before every tool.
        """
        request = runner_pb2.ToolRequest(
            request_id=str(uuid.uuid4()),
            thread_id=self.thread_id,
            generation=self.start.generation,
            tool=tool,
            arguments_json=json.dumps(arguments or {}),
            resolved_paths=paths,
        )
        decision = await self._program.runner.ask(request)
        allowed, denied = transcript_pb2.TOOL_VERDICT_ALLOWED, transcript_pb2.TOOL_VERDICT_DENIED
        call = transcript_pb2.TranscriptToolCall(
            tool=tool,
            native_tool=tool,
            verdict=allowed if decision.allowed else denied,
            reason="" if decision.allowed else decision.reason,
        )
        self._program.record(
            transcript_pb2.TranscriptEntry(
                turn=self.turn,
                kind=transcript_pb2.TRANSCRIPT_KIND_TOOL_CALL,
                text=request.arguments_json,
                tool_call=call,
            )
        )
        return decision


class Runner:
    """Attaches to the supervisor and executes threads until it is drained. `serve` does this in one call."""

    def __init__(
        self,
        client: Client,
        *agents: Agent,
        runner_id: str = "",
        labels: Mapping[str, str] | None = None,
        session_id: str = "",
        capacity: int = 8,
        kind: str = "python",
        enforces_tools: bool = False,
        enforces_read_only: bool = False,
    ) -> None:
        """`enforces_tools` declares that every agent calls `Task.authorize` before each tool, or has no tools.

        `enforces_read_only` declares that agents of READ_ONLY threads cannot write. Without these two declarations, the
        supervisor gives the runner only threads without restrictions.
        """
        self._client = client
        self._agents = agents
        self._hello = runner_pb2.RunnerHello(
            runner_id=runner_id or f"{kind}-{os.getpid()}",
            kinds=[
                runner_pb2.RunnerKind(kind=kind, enforces_tools=enforces_tools, enforces_read_only=enforces_read_only)
            ],
            labels=labels,
            capacity=capacity,
            session_id=session_id,
        )
        self._programs: dict[str, _Program] = {}
        self._reports: dict[_Attempt, _Reports] = {}
        self._transcripts: dict[_Attempt, _Transcript] = {}
        self._questions: dict[str, tuple[runner_pb2.ToolRequest, asyncio.Future[Decision]]] = {}
        self._outgoing: asyncio.Queue[runner_pb2.AttachRequest] = asyncio.Queue()
        self._call: grpc.aio.StreamStreamCall[runner_pb2.AttachRequest, runner_pb2.AttachResponse] | None = None
        self._is_attached = False
        self._is_draining = False
        self.attached = asyncio.Event()
        """Set while the runner is attached."""

    async def run(self) -> None:
        """Attaches, and attaches again whenever the stream is lost. Returns when the runner is drained."""
        caller = self._client._caller
        backoff = Backoff(caller.policy, float("inf"))
        try:
            while not self._is_drained():
                try:
                    await self._serve(caller, backoff)
                    if not self._is_drained():
                        # The supervisor is about to stop, or ended the stream.
                        await asyncio.sleep(_ATTACH_DELAY)
                except grpc.aio.AioRpcError as failure:
                    await caller.recover(failure, backoff)
                except asyncio.CancelledError:
                    # `drain` cancels the stream. Every other cancellation comes from the caller.
                    if not self._is_drained():
                        raise
        finally:
            for program in self._programs.values():
                program.abandon()

    def drain(self) -> None:
        """Accepts no more threads. `run` returns when the last thread has ended."""
        self._is_draining = True
        if self._is_drained() and self._call is not None:
            self._call.cancel()
        elif self._is_attached:
            self._send(draining=runner_pb2.RunnerDraining())

    # ---- for the programs

    def report(self, attempt: _Attempt, **kind: Any) -> None:
        """Numbers a report and sends it if the runner is attached. The report is resent until it is durable."""
        report = self._reports.setdefault(attempt, _Reports()).add(attempt, kind)
        if self._is_attached:
            self._send(report=report)

    def record(self, attempt: _Attempt, entry: transcript_pb2.TranscriptEntry) -> None:
        """Adds an entry to a transcript. Sends it if the runner is attached, and resends it until it is durable."""
        batch = self._transcripts.setdefault(attempt, _Transcript()).add(attempt, entry)
        if batch is not None and self._is_attached:
            self._send(transcript=batch)

    def send_telemetry(self, start: runner_pb2.StartThread, activity: str) -> None:
        """Sends the current activity of a thread, if the runner is attached."""
        if self._is_attached:
            telemetry = event_pb2.Telemetry(activity=activity)
            telemetry.thread_id, telemetry.generation = start.thread_id, start.generation
            self._send(telemetry=telemetry)

    async def ask(self, request: runner_pb2.ToolRequest) -> Decision:
        """Sends a tool request, and resends it on each new stream until it is answered."""
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._questions[request.request_id] = request, answer
        try:
            if self._is_attached:
                self._send(tool_request=request)
            return await answer
        finally:
            del self._questions[request.request_id]

    # ---- the stream

    async def _serve(self, caller: Caller, backoff: Backoff) -> None:
        self._outgoing = asyncio.Queue()
        hello = runner_pb2.RunnerHello()
        hello.CopyFrom(self._hello)
        for (thread_id, generation), reports in self._reports.items():
            if (program := self._held(thread_id, generation)) is not None:
                hello.threads.add(
                    thread_id=thread_id, generation=generation, turn=program.turn, report_sequence=reports.last
                )
        self._send(hello=hello)
        stub: ThreadRunnerServiceAsyncStub = ThreadRunnerServiceStub(caller.channel)
        call = stub.Attach(_messages(self._outgoing), metadata=caller.metadata())
        self._call = call
        heartbeats: asyncio.Task[None] | None = None
        try:
            async for response in call:
                backoff.reset()
                kind = response.WhichOneof("message")
                if kind == "welcome":
                    self._welcome(response.welcome)
                    heartbeats = asyncio.create_task(self._beat(response.welcome.lease))
                elif kind == "go_away":
                    return
                else:
                    self._obey(kind, response)
                if self._is_drained():
                    return
        finally:
            self._is_attached = False
            self.attached.clear()
            call.cancel()
            if heartbeats is not None:
                heartbeats.cancel()

    def _welcome(self, welcome: runner_pb2.RunnerWelcome) -> None:
        for verdict in welcome.threads:
            program = self._programs.get(verdict.thread_id)
            if program is not None and verdict.go_on:
                self._acknowledge(program.attempt, verdict.applied_report_sequence)
            elif program is not None:
                self._abandon(program)
        self._is_attached = True
        self.attached.set()
        if self._is_draining:
            self._send(draining=runner_pb2.RunnerDraining())
        # Entries precede the reports of their thread.
        for transcript in self._transcripts.values():
            for batch in transcript.kept:
                self._send(transcript=batch)
        for reports in self._reports.values():
            for report in reports.kept:
                self._send(report=report)
        for request, _ in self._questions.values():
            self._send(tool_request=request)

    async def _beat(self, lease: Duration) -> None:
        while True:
            await asyncio.sleep(lease.ToTimedelta().total_seconds() / 3)
            self._send(heartbeat=runner_pb2.RunnerHeartbeat())

    def _send(self, **message: Any) -> None:
        self._outgoing.put_nowait(runner_pb2.AttachRequest(**message))

    # ---- the commands of the supervisor

    def _obey(self, kind: str | None, response: runner_pb2.AttachResponse) -> None:
        # Messages of other kinds are newer than this release.
        match kind:
            case "report_ack":
                ack = response.report_ack
                self._acknowledge((ack.thread_id, ack.generation), ack.report_sequence)
            case "transcript_ack":
                stored = response.transcript_ack
                transcript = self._transcripts.get((stored.thread_id, stored.generation))
                if transcript is not None:
                    transcript.acknowledge(stored.batch)
            case "tool_decision":
                decision = response.tool_decision
                _, answer = self._questions.get(decision.request_id, (None, None))
                if answer is not None and not answer.done():
                    answer.set_result(Decision(decision.allowed, decision.reason))
            case "start_thread":
                self._start(response.start_thread)
                self._acknowledge_command(response.start_thread.command_id)
            case "deliver_input":
                delivered = response.deliver_input
                program = self._held(delivered.thread_id, delivered.generation)
                # This runner does not report input for a running turn as delivered, so the next turn contains the
                # input.
                if program is not None and delivered.HasField("turn"):
                    program.begin(delivered.turn)
                self._acknowledge_command(delivered.command_id)
            case "interrupt":
                interrupt = response.interrupt
                program = self._held(interrupt.thread_id, interrupt.generation)
                # A late interrupt must not stop the next turn.
                if program is not None and interrupt.turn == program.turn:
                    program.cancel(interrupt.reason)
                self._acknowledge_command(interrupt.command_id)
            case "shutdown":
                shutdown = response.shutdown
                program = self._held(shutdown.thread_id, shutdown.generation)
                if program is not None:
                    program.shut_down(shutdown)
                self._acknowledge_command(shutdown.command_id)
            case _:
                pass

    def _acknowledge_command(self, command_id: str) -> None:
        self._send(command_ack=runner_pb2.CommandAck(command_id=command_id))

    def _start(self, start: runner_pb2.StartThread) -> None:
        earlier = self._programs.get(start.thread_id)
        if earlier is not None:
            if earlier.attempt[1] >= start.generation:
                return
            self._abandon(earlier)
        role = start.resolved.agent_type
        found = next((each for each in self._agents if not each.roles or role in each.roles), None)
        if found is None:
            refused = runner_pb2.StartRefused(
                thread_id=start.thread_id,
                generation=start.generation,
                refusal=runner_pb2.START_REFUSAL_NO_PROGRAM,
                message=f'this runner has no agent for the role "{role}"',
            )
            self._send(start_refused=refused)
            return
        program = _Program(self, found, start)
        self._programs[start.thread_id] = program
        program.begin(start.turn)

    def _acknowledge(self, attempt: _Attempt, up_to: int) -> None:
        reports = self._reports.get(attempt)
        if reports is None:
            return
        reports.acknowledge(up_to)
        program = self._held(*attempt)
        if program is not None and program.is_over and not reports.kept:
            del self._programs[attempt[0]], self._reports[attempt]
            # The entries of the attempt became durable before its last report.
            self._transcripts.pop(attempt, None)

    def _abandon(self, program: _Program) -> None:
        program.abandon()
        del self._programs[program.attempt[0]]
        self._reports.pop(program.attempt, None)
        self._transcripts.pop(program.attempt, None)

    def _held(self, thread_id: str, generation: int) -> _Program | None:
        program = self._programs.get(thread_id)
        return program if program is not None and program.attempt[1] == generation else None

    def _is_drained(self) -> bool:
        return self._is_draining and not self._programs


async def serve(*agents: Agent, client: Client | None = None, **settings: Any) -> None:
    """Executes threads until SIGINT or SIGTERM. Then waits until the running turns have ended, and returns.

    `settings` are those of `Runner`. Without `client`, the supervisor is found as `connect` finds it.
    """
    async with client or connect() as opened:
        runner = Runner(opened, *agents, **settings)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, runner.drain)
        await runner.run()


@dataclass
class _Reports:
    """The reports of one attempt that are not known to be durable."""

    last: int = 0
    kept: deque[runner_pb2.RunnerReport] = field(default_factory=lambda: deque[runner_pb2.RunnerReport]())

    def add(self, attempt: _Attempt, kind: Mapping[str, Any]) -> runner_pb2.RunnerReport:
        """Numbers a report and keeps it."""
        self.last += 1
        report = runner_pb2.RunnerReport(
            thread_id=attempt[0], generation=attempt[1], report_sequence=self.last, **kind
        )
        self.kept.append(report)
        return report

    def acknowledge(self, up_to: int) -> None:
        """Forgets the reports up to this number."""
        while self.kept and self.kept[0].report_sequence <= up_to:
            self.kept.popleft()


@dataclass
class _Transcript:
    """The entries of one attempt that are not known to be durable. Each entry is a batch."""

    last: int = 0
    kept: deque[runner_pb2.TranscriptBatch] = field(default_factory=lambda: deque[runner_pb2.TranscriptBatch]())
    # The number of entries that were dropped since the last one that was kept.
    dropped: int = 0

    def add(
        self, attempt: _Attempt, entry: transcript_pb2.TranscriptEntry
    ) -> runner_pb2.TranscriptBatch | None:
        """Numbers a batch and keeps it. Returns None if too many batches wait; the next batch reports the dropped entries."""
        if len(self.kept) >= _MAX_ENTRIES:
            self.dropped += 1
            return None
        entry.text = entry.text[:_MAX_TEXT]
        entry.time.GetCurrentTime()
        entries = [entry]
        if self.dropped:
            text = f"{self.dropped} entries are missing: the supervisor was not reachable"
            notice = transcript_pb2.TRANSCRIPT_KIND_NOTICE
            entries.insert(0, transcript_pb2.TranscriptEntry(turn=entry.turn, kind=notice, text=text, time=entry.time))
            self.dropped = 0
        self.last += 1
        batch = runner_pb2.TranscriptBatch(
            thread_id=attempt[0], generation=attempt[1], batch=self.last, entries=entries
        )
        self.kept.append(batch)
        return batch

    def acknowledge(self, up_to: int) -> None:
        """Forgets the batches up to this number."""
        while self.kept and self.kept[0].batch <= up_to:
            self.kept.popleft()


class _Program:
    """One attempt at a thread. It continues while the runner is disconnected."""

    def __init__(self, runner: Runner, executed_by: Agent, start: runner_pb2.StartThread) -> None:
        self.runner = runner
        self.start = start
        self.attempt: _Attempt = (start.thread_id, start.generation)
        # The number of the last turn that was dispatched.
        self.turn = 0
        self.state: dict[str, Any] = {}
        self.usage = thread_pb2.Usage()
        # Whether the last report of the attempt was created.
        self.is_over = False
        self._agent = executed_by
        self._work: asyncio.Task[str] | None = None
        self._end: asyncio.Task[None] | None = None
        self._reason = ""
        self._is_abandoned = False

    def report(self, **kind: Any) -> None:
        """Sends a report of this attempt."""
        if not self._is_abandoned:
            self.runner.report(self.attempt, **kind)

    def record(self, entry: transcript_pb2.TranscriptEntry) -> None:
        """Adds an entry to the transcript of the thread."""
        if not self._is_abandoned and entry.text:
            self.runner.record(self.attempt, entry)

    def begin(self, turn: runner_pb2.Turn) -> None:
        """Starts a turn. A repeated command is ignored, because commands are resent on a new stream."""
        if turn.turn <= self.turn:
            return
        if self.turn == 0 and turn.turn > 1:
            reason = "the function has no state of earlier attempts"
            self.report(context_lost=runner_pb2.ContextLostReport(reason=reason))
        self.turn = turn.turn
        self._reason = ""
        self.report(turn_started=runner_pb2.TurnStartedReport(turn=turn.turn))
        task = Task(self, turn)
        given = transcript_pb2.TRANSCRIPT_KIND_INPUT
        self.record(transcript_pb2.TranscriptEntry(turn=turn.turn, kind=given, text=task.message))
        self._work = asyncio.ensure_future(self._execute(task))
        self._work.add_done_callback(self._turn_ended)

    async def _execute(self, task: Task) -> str:
        return await self._agent.function(task)

    def cancel(self, reason: str) -> None:
        """Stops the running turn."""
        if self._work is not None and not self._work.done():
            self._reason = reason
            self._work.cancel()

    def shut_down(self, order: runner_pb2.ShutdownThread) -> None:
        """Ends the attempt. A repeated command can have a stricter close policy than the first one."""
        if self._end is None:
            self._end = asyncio.create_task(self._shut_down(order))
        elif order.close_policy != thread_pb2.CLOSE_POLICY_FINISH_TURN:
            self.cancel(order.reason)

    def abandon(self) -> None:
        """Stops the work without a report: the supervisor has given the thread to another attempt."""
        self._is_abandoned = True
        self.cancel("abandoned")
        if self._end is not None:
            self._end.cancel()

    async def _shut_down(self, order: runner_pb2.ShutdownThread) -> None:
        if self._work is not None:
            if order.close_policy == thread_pb2.CLOSE_POLICY_FINISH_TURN:
                await asyncio.wait({self._work}, timeout=order.grace.ToTimedelta().total_seconds())
            self.cancel(order.reason)
            await asyncio.wait({self._work})
        self.is_over = True
        self.report(stopped=runner_pb2.ThreadStoppedReport(detail="the function has ended"))

    def _turn_ended(self, work: asyncio.Task[str]) -> None:
        ended = runner_pb2.TurnEndedReport(turn=self.turn, usage=self.usage)
        if work.cancelled():
            kind: Kind = "notice"
            ended.outcome, ended.message = event_pb2.TURN_OUTCOME_INTERRUPTED, self._reason
        elif (error := work.exception()) is not None:
            kind = "error"
            ended.outcome = event_pb2.TURN_OUTCOME_ERRORED
            ended.message = f"{type(error).__name__}: {error}"
        else:
            kind = "message"
            ended.outcome, ended.message = event_pb2.TURN_OUTCOME_COMPLETED, work.result()
            ended.output_sha256 = hashlib.sha256(ended.message.encode()).hexdigest()
        self.record(transcript_pb2.TranscriptEntry(turn=self.turn, kind=_KINDS[kind], text=ended.message))
        self.report(turn_ended=ended)


async def _messages(outgoing: asyncio.Queue[runner_pb2.AttachRequest]) -> AsyncIterator[runner_pb2.AttachRequest]:
    """Yields the messages that are sent on one stream. The iteration ends with the stream."""
    while True:
        yield await outgoing.get()


__all__ = ["Agent", "Decision", "Runner", "Task", "agent", "serve"]
