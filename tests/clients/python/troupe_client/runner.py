"""A runner: takes threads from the supervisor and executes them, here with agents in its own process.

    python -m troupe_client.runner NAME    executes any session's threads until Ctrl-C

Rules of runner.proto: hello comes first and lists the threads that the runner holds; a message is sent in every third of
the lease; reports are numbered and repeated until they are durable; commands may be repeated.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
from troupe.supervisor.v1.runner_pb2 import (
    AttachRequest,
    AttachResponse,
    CommandAck,
    DeliverInput,
    HeldThread,
    InterruptTurn,
    ReportAck,
    RunnerDraining,
    RunnerHeartbeat,
    RunnerHello,
    RunnerKind,
    RunnerWelcome,
    ShutdownThread,
    StartThread,
)

from .agent import Agent, EchoAgent
from .outbox import Attempt, Outbox
from .program import Program
from .troupe import Pair, Troupe

# The welcome would be the same after a retry.
_FINAL = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
_RETRY_SECONDS = 0.2


class Runner:
    """Executes threads until it has drained. It runs in one event loop and shares nothing with other OS threads."""

    def __init__(
        self,
        troupe: Troupe,
        runner_id: str,
        make_agent: Callable[[StartThread], Agent],
        *,
        session_id: str = "",
        labels: dict[str, str] | None = None,
        capacity: int = 8,
    ) -> None:
        self._troupe = troupe
        self._make_agent = make_agent
        self._who = RunnerHello(
            runner_id=runner_id,
            # An agent without tools obeys every policy. An agent with tools must declare less, or use tool_request.
            kinds=[RunnerKind(kind="echo", enforces_tools=True, enforces_read_only=True)],
            labels=labels,
            capacity=capacity,
            session_id=session_id,
        )
        self._programs: dict[str, Program] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._outbox = Outbox()
        self._call: grpc.aio.StreamStreamCall[AttachRequest, AttachResponse] | None = None
        # The queue of the current stream. A new stream begins with a new queue.
        self._outgoing: asyncio.Queue[AttachRequest] = asyncio.Queue()
        # True between the welcome and the end of the stream. At other times, reports wait in the outbox.
        self._is_attached = False
        self._is_draining = False
        self._was_cut = False
        # Set at each welcome, for callers that wait for the attachment.
        self.attached = asyncio.Event()

    async def run(self) -> None:
        """Attaches, and attaches again each time the stream is lost, until the runner has drained."""
        try:
            while not self._has_drained():
                try:
                    await self._serve()
                except grpc.aio.AioRpcError as error:
                    if error.code() in _FINAL:
                        raise
                except asyncio.CancelledError:
                    # The exception is the same for a cancelled stream and a cancelled task.
                    if not self._was_cut:
                        raise
                    self._was_cut = False
                if not self._has_drained():
                    await asyncio.sleep(_RETRY_SECONDS)
        finally:
            # Reached only after a cancellation of the runner, when there is no stream for reports.
            for program in self._programs.values():
                program.abandon()

    def drain(self) -> None:
        """Accepts no more threads. `run` returns when the last thread has ended."""
        self._is_draining = True
        if self._has_drained():
            self.cut()
        elif self._is_attached:
            self._say(draining=RunnerDraining())

    def cut(self) -> None:
        """Cancels the stream. Threads continue, and the runner attaches again."""
        self._detach()
        if self._call is not None:
            self._was_cut = True
            self._call.cancel()

    # ---- the stream ----

    async def _serve(self) -> None:
        self._outgoing = asyncio.Queue()
        self._say(hello=self._hello())
        self._call = self._troupe.runners.Attach(_messages(self._outgoing), metadata=self._troupe.authorization)
        heartbeats: asyncio.Task[None] | None = None
        try:
            async for response in self._call:
                kind = response.WhichOneof("message")
                if kind == "welcome":
                    self._welcome(response.welcome)
                    heartbeats = asyncio.create_task(self._beat(response.welcome))
                elif kind == "go_away":
                    return
                else:
                    self._obey(response)
                if self._has_drained():
                    return
        finally:
            self._detach()
            self._call.cancel()
            if heartbeats is not None:
                heartbeats.cancel()

    def _hello(self) -> RunnerHello:
        hello = RunnerHello()
        hello.CopyFrom(self._who)
        for program in self._programs.values():
            hello.threads.append(
                HeldThread(
                    thread_id=program.attempt.thread_id,
                    generation=program.attempt.generation,
                    turn=program.turn,
                    report_sequence=self._outbox.last(program.attempt),
                )
            )
        return hello

    def _welcome(self, welcome: RunnerWelcome) -> None:
        for verdict in welcome.threads:
            program = self._programs.get(verdict.thread_id)
            if program is None:
                continue
            if verdict.go_on:
                self._outbox.acknowledge(program.attempt, verdict.applied_report_sequence)
                self._let_go(program)
            else:
                self._abandon(program)
        self._is_attached = True
        self.attached.set()
        if self._is_draining:
            self._say(draining=RunnerDraining())
        for report in self._outbox.pending():
            self._say(report=report)

    async def _beat(self, welcome: RunnerWelcome) -> None:
        third_of_the_lease = welcome.lease.ToTimedelta().total_seconds() / 3
        while True:
            await asyncio.sleep(third_of_the_lease)
            self._say(heartbeat=RunnerHeartbeat())

    def _detach(self) -> None:
        self._is_attached = False
        self.attached.clear()

    def _say(self, **message: Any) -> None:
        self._outgoing.put_nowait(AttachRequest(**message))

    def _report(self, attempt: Attempt, **kind: Any) -> None:
        report = self._outbox.record(attempt, **kind)
        if self._is_attached:
            self._say(report=report)

    # ---- the supervisor's commands ----

    def _obey(self, response: AttachResponse) -> None:
        kind = response.WhichOneof("message")
        if kind == "report_ack":
            self._acknowledged(response.report_ack)
        elif kind == "start_thread":
            self._start(response.start_thread)
            self._arrived(response.start_thread.command_id)
        elif kind == "deliver_input":
            self._deliver(response.deliver_input)
            self._arrived(response.deliver_input.command_id)
        elif kind == "interrupt":
            self._interrupt(response.interrupt)
            self._arrived(response.interrupt.command_id)
        elif kind == "shutdown":
            self._shut_down(response.shutdown)
            self._arrived(response.shutdown.command_id)
        # All other messages are newer than this runner, or respond to requests that it does not send.

    def _arrived(self, command_id: str) -> None:
        self._say(command_ack=CommandAck(command_id=command_id))

    def _acknowledged(self, ack: ReportAck) -> None:
        self._outbox.acknowledge(Attempt(ack.thread_id, ack.generation), ack.report_sequence)
        program = self._programs.get(ack.thread_id)
        if program is not None:
            self._let_go(program)

    def _start(self, start: StartThread) -> None:
        earlier = self._programs.get(start.thread_id)
        if earlier is not None:
            if earlier.attempt.generation >= start.generation:
                return
            self._abandon(earlier)
        program = Program(Attempt(start.thread_id, start.generation), self._make_agent(start), self._report)
        self._programs[start.thread_id] = program
        program.begin(start.turn)

    def _deliver(self, delivered: DeliverInput) -> None:
        program = self._held(delivered.thread_id, delivered.generation)
        # An echo ignores `running`, input within a turn. Unless reported as delivered, it is part of the next turn.
        if program is not None and delivered.WhichOneof("delivery") == "turn":
            program.begin(delivered.turn)

    def _interrupt(self, interrupt: InterruptTurn) -> None:
        program = self._held(interrupt.thread_id, interrupt.generation)
        if program is not None:
            program.interrupt(interrupt.turn, interrupt.reason)

    def _shut_down(self, shutdown: ShutdownThread) -> None:
        program = self._held(shutdown.thread_id, shutdown.generation)
        if program is not None:
            stopping = asyncio.create_task(program.stop(shutdown))
            # The event loop keeps only weak references to tasks.
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)

    # ---- the threads ----

    def _held(self, thread_id: str, generation: int) -> Program | None:
        """Returns the program of an attempt. Commands for other attempts are ignored."""
        program = self._programs.get(thread_id)
        return program if program is not None and program.attempt.generation == generation else None

    def _abandon(self, program: Program) -> None:
        program.abandon()
        del self._programs[program.attempt.thread_id]
        self._outbox.forget(program.attempt)

    def _let_go(self, program: Program) -> None:
        """Removes an attempt that has ended and whose reports are all durable."""
        if program.is_over and self._outbox.is_clear(program.attempt):
            del self._programs[program.attempt.thread_id]
            self._outbox.forget(program.attempt)

    def _has_drained(self) -> bool:
        return self._is_draining and not self._programs


async def _messages(outgoing: asyncio.Queue[AttachRequest]) -> AsyncIterator[AttachRequest]:
    """Yields the messages of a stream. gRPC ends the generator with the stream."""
    while True:
        yield await outgoing.get()


async def main(runner_id: str) -> None:
    """Runs an echo agent for every session, and drains on SIGINT and SIGTERM."""
    async with Troupe(Pair.from_environment()) as troupe:
        runner = Runner(troupe, runner_id, lambda _start: EchoAgent(), labels={"language": "python"})
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, runner.drain)
        await runner.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "python-echo"))
