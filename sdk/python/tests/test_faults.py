"""The client while the service is killed, does not answer, or the connection is lost."""

from __future__ import annotations

import asyncio
import signal
import ssl
import time
import unittest

import troupe
from troupe.events import Event, SessionClosed, ThreadSpawned, TurnStarted
from troupe.supervisor.v1 import supervisor_pb2
from troupe.supervisor.v1.transcript_pb2 import TranscriptEntry

from .pair import DEADLINE, Pair, PairTest, Relay


async def numbers(session: troupe.Session) -> list[int]:
    """Returns the sequence numbers of a closed session."""
    return [event.sequence async for event in session.events()]


class FaultTest(PairTest):
    """Each test has a pair of its own."""

    async def test_stream_survives_kill_and_restart(self) -> None:
        seen: list[Event] = []
        async with self.pair.connect() as client:
            session = await client.session()

            async def follow() -> None:
                async for event in session.events():
                    seen.append(event)

            following = asyncio.create_task(follow())
            threads: list[troupe.Thread] = []
            for _ in range(3):
                for number in range(5):
                    threads.append(await session.spawn("worker", f"say: {number}", queue=True))
                await self.pair.send(signal.SIGKILL)
                spawning = asyncio.create_task(session.spawn("worker", "say: during the restart", queue=True))
                await self.pair.start()
                threads.append(await asyncio.wait_for(spawning, DEADLINE))
            results = await session.wait_all(threads, timeout=DEADLINE)
            self.assertEqual(len(results), 18)
            request = supervisor_pb2.CloseSessionRequest(session_id=session.id, wait=True)
            await client.call(client.stub.CloseSession, request)
            await asyncio.wait_for(following, DEADLINE)
            found = [event.sequence for event in seen]
            self.assertEqual(found, list(range(1, len(found) + 1)))
            self.assertEqual(found, await numbers(session))
            self.assertIsInstance(seen[-1], SessionClosed)
            # The root and 18 threads: no spawn was lost, none was made twice.
            self.assertEqual(sum(isinstance(event, ThreadSpawned) for event in seen), 19)

    async def test_result_survives_kill_and_restart(self) -> None:
        async with self.pair.connect() as client, client.session() as session:
            thread = await session.spawn("worker", "hold")
            async for event in session.events():
                # Wait for the start of the turn: a turn that starts after the restart would hold.
                if isinstance(event, TurnStarted):
                    break
            waiting = asyncio.create_task(thread.result(DEADLINE))
            await self.pair.send(signal.SIGKILL)
            await self.pair.start()
            with self.assertRaises(troupe.AgentError):
                await asyncio.wait_for(waiting, DEADLINE)

    async def test_retry_after_lost_response_has_no_second_effect(self) -> None:
        async with Relay(self.pair.url) as relay, self.pair.connect(relay.url) as client, self.pair.connect() as direct:
            session = await client.session()
            watched = (await direct.get_session(session.id)).events()
            relay.withholds = True
            spawning = asyncio.create_task(session.spawn("worker", "say: once"))
            spawned = 0
            while spawned < 2:
                spawned += isinstance(await asyncio.wait_for(anext(watched), DEADLINE), ThreadSpawned)
            # The spawn is durable, and its response is lost.
            self.assertFalse(spawning.done())
            relay.withholds = False
            relay.drop()
            thread = await asyncio.wait_for(spawning, DEADLINE)
            self.assertEqual([each.thread_id for each in await session.threads()], [thread.id])
            await session.close()
            self.assertGreaterEqual(relay.connections, 2)

    async def test_stream_survives_lost_connections(self) -> None:
        async with Relay(self.pair.url) as relay, self.pair.connect(relay.url) as client, self.pair.connect() as direct:
            session = await direct.session()
            events = (await client.get_session(session.id)).events()
            seen: list[int] = []
            for _ in range(5):
                threads = [await session.spawn("worker", "say: it", queue=True) for _ in range(3)]
                # The events of the next round come after the drop, so they need a new connection.
                while True:
                    event = await asyncio.wait_for(anext(events), DEADLINE)
                    seen.append(event.sequence)
                    if isinstance(event, ThreadSpawned) and event.thread == threads[0].id:
                        break
                relay.drop()
            await session.close()
            seen += [event.sequence async for event in events]
            self.assertEqual(seen, await numbers(session))
            self.assertGreaterEqual(relay.connections, 5)

    async def test_transcript_survives_kills_and_lost_connections(self) -> None:
        async with Relay(self.pair.url) as relay, self.pair.connect(relay.url) as client, self.pair.connect() as direct:
            session = await direct.session()
            thread = await session.spawn("worker", "say: 0")
            seen: list[TranscriptEntry] = []
            is_grown = asyncio.Event()

            async def follow() -> None:
                async for entry in (await client.get_session(session.id)).thread(thread.id).transcript(follow=True):
                    seen.append(entry)
                    is_grown.set()

            following = asyncio.create_task(follow())
            for number in range(1, 7):
                # Now the follower has a stream, and the turn has more entries to write.
                await asyncio.wait_for(is_grown.wait(), DEADLINE)
                if number % 2:
                    relay.drop()
                else:
                    await self.pair.send(signal.SIGKILL)
                    await self.pair.start()
                is_grown.clear()
                await thread.send(f"say: {number}")
            await session.wait_all([thread], timeout=DEADLINE)
            await thread.close()
            await asyncio.wait_for(following, DEADLINE)
            self.assertEqual([entry.number for entry in seen], list(range(1, len(seen) + 1)))
            self.assertEqual(seen, [entry async for entry in thread.transcript()])
            self.assertGreaterEqual(relay.connections, 6)

    async def test_call_ends_at_its_deadline(self) -> None:
        async with self.pair.connect() as client, client.session() as session:
            thread = await session.spawn("worker", "hold")
            await self.pair.send(signal.SIGSTOP)
            started = time.monotonic()
            request = supervisor_pb2.GetSessionRequest(session_id=session.id)
            with self.assertRaises(troupe.DeadlineExceededError):
                await client.call(client.stub.GetSession, request, timeout=0.5)
            with self.assertRaises(TimeoutError):
                await thread.result(timeout=0.5)
            self.assertLess(time.monotonic() - started, DEADLINE / 2)
            await self.pair.send(signal.SIGCONT)

    async def test_unreachable_service_is_error(self) -> None:
        retry = troupe.RetryPolicy(attempts=3, initial_delay=0.05)
        client = troupe.connect(self.pair.url, data_dir=self.pair.data, retry=retry, reconnect_timeout=0.5)
        async with client:
            session = await client.session()
            events = session.events()
            await anext(events)
            await anext(events)
            await self.pair.send(signal.SIGKILL)
            with self.assertRaises(troupe.ServiceError) as raised:
                await asyncio.wait_for(session.spawn("worker", "say: hello"), DEADLINE)
            self.assertTrue(raised.exception.is_transient)
            self.assertEqual(raised.exception.reason, "")
            with self.assertRaises(troupe.ServiceError):
                await asyncio.wait_for(anext(events), DEADLINE)

    async def test_wrong_token_is_rejected(self) -> None:
        async with troupe.connect(self.pair.url, token="wrong") as client:
            with self.assertRaises(troupe.UnauthenticatedError):
                await client.sessions()

    async def test_token_file_is_read_again(self) -> None:
        file = self.pair.directory / "token"
        file.write_text("wrong\n")
        async with troupe.connect(self.pair.url, token_file=file) as client:
            with self.assertRaises(troupe.UnauthenticatedError):
                await client.sessions()
            file.with_suffix(".new").write_text((self.pair.data / "operator.token").read_text())
            file.with_suffix(".new").rename(file)
            self.assertEqual(await client.sessions(), [])


class TlsTest(PairTest):
    """The relay in front of the pair has TLS."""

    async def test_connection_over_tls(self) -> None:
        certificate, key = self.pair.directory / "certificate.pem", self.pair.directory / "key.pem"
        process = await asyncio.create_subprocess_exec(
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"),
            *("-subj", "/CN=troupe-sdk", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.assertEqual(await process.wait(), 0)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.set_alpn_protocols(["h2"])
        async with Relay(self.pair.url, context) as relay:
            async with troupe.connect(relay.url, data_dir=self.pair.data, ca=certificate) as client:
                self.assertEqual(await client.sessions(), [])
            retry = troupe.RetryPolicy(attempts=1)
            async with troupe.connect(relay.url, data_dir=self.pair.data, retry=retry) as client:
                with self.assertRaises(troupe.ServiceError):
                    await client.sessions()


class FoundTokenTest(unittest.IsolatedAsyncioTestCase):
    """A data directory with the token of another pair."""

    async def test_found_token_of_another_pair_is_left_out(self) -> None:
        pair, other = Pair("--trust-loopback"), Pair()
        for each in (pair, other):
            self.addAsyncCleanup(each.remove)
            await each.start()
        async with troupe.connect(pair.url, data_dir=other.data) as client, client.session() as session:
            self.assertIsInstance(await anext(session.events()), Event)
