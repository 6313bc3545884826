"""A running pair of services, and a relay that loses connections."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import ssl
import tempfile
import unittest
from pathlib import Path

import troupe

# The maximum duration of a step, even on a busy machine.
DEADLINE = 60.0


def binary(name: str) -> Path:
    """Returns the path of a binary of TROUPE_BIN."""
    return Path(os.environ["TROUPE_BIN"]).absolute() / name


class Pair:
    """Both services in one process, `troupe up`, with data of its own. It can be killed and started again."""

    def __init__(self, *arguments: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="troupe-sdk-"))
        self.project = self.directory / "project"
        self.project.mkdir()
        self.data = self.directory / "data"
        self.url = ""
        self._arguments = arguments
        self._listen = ["127.0.0.1:0", "127.0.0.1:0"]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts the pair, at the addresses of its first start, and waits until it serves."""
        ready = self.directory / "ready.json"
        ready.unlink(missing_ok=True)
        with open(self.directory / "log", "ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(str(binary("troupe")), "up", "--data-dir", str(self.data), "--home", str(self.directory)),
                *("--workspace-root", str(self.directory), "--ready-file", str(ready)),
                *("--registry-listen", self._listen[0], "--supervisor-listen", self._listen[1]),
                *self._arguments,
                stdout=log,
                stderr=log,
                env={"HOME": str(self.directory), "PATH": os.environ["PATH"]},
            )
        until = asyncio.get_running_loop().time() + DEADLINE
        while not ready.exists():
            if self._process.returncode is not None or asyncio.get_running_loop().time() > until:
                raise RuntimeError(f"the pair does not start: {(self.directory / 'log').read_text()}")
            await asyncio.sleep(0.02)
        addresses = json.loads(ready.read_text())
        self._listen = [str(addresses[name]).removeprefix("http://") for name in ("registry", "supervisor")]
        self.url = f"http://{self._listen[1]}"

    async def send(self, number: signal.Signals) -> None:
        """Sends the process a signal. If the signal ends or stops the process, waits until it has ended or stopped."""
        assert self._process is not None
        self._process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            await asyncio.wait_for(self._process.wait(), DEADLINE)
        if number == signal.SIGSTOP:
            # The threads of the process run until each has taken the signal.
            stopped = asyncio.to_thread(os.waitid, os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)
            await asyncio.wait_for(stopped, DEADLINE)

    async def remove(self) -> None:
        """Ends the process and removes the data."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def connect(self, url: str = "", **settings: float) -> troupe.Client:
        """Returns a client of the pair."""
        return troupe.connect(url or self.url, data_dir=self.data, **settings)  # type: ignore[arg-type]


class PairTest(unittest.IsolatedAsyncioTestCase):
    """A test with a pair of its own."""

    arguments: tuple[str, ...] = ()

    async def asyncSetUp(self) -> None:
        self.pair = Pair(*self.arguments)
        self.addAsyncCleanup(self.pair.remove)
        await self.pair.start()


class Relay:
    """A TCP relay in front of the supervisor. It can withhold responses and drop its connections."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._target = (host, int(port))
        self._writers: set[asyncio.StreamWriter] = set()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self.url = ""
        # Whether the data that the supervisor sends is discarded.
        self.withholds = False
        # The number of connections that were made.
        self.connections = 0

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()

    def drop(self) -> None:
        """Closes all connections. New ones are accepted."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            up_reader, up_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        await asyncio.gather(self._copy(reader, up_writer, False), self._copy(up_reader, writer, True))
        self._writers -= {writer, up_writer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_response: bool) -> None:
        try:
            while data := await reader.read(65536):
                if not (is_response and self.withholds):
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
