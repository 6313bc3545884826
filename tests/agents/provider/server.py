"""The HTTP server: selects the protocol of a request and executes a step."""

import hashlib
import json
import select
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import chat
import gemini
import messages
import responses
from script import BadScript, due

# Selected by the end of the path, so that any base URL works.
_PROTOCOLS = (
    ("/responses", responses),
    ("/chat/completions", chat),
    ("/messages", messages),
    (":generateContent", gemini),
    (":streamGenerateContent", gemini),
)


class Log:
    """A log with one JSON line for each request."""

    def __init__(self, path):
        self._file = open(path, "a", encoding="utf-8") if path else None
        self._lock = threading.Lock()
        self._count = 0

    def number(self):
        with self._lock:
            self._count += 1
            return self._count

    def write(self, **entry):
        if self._file is None:
            return
        with self._lock:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()

    def close(self):
        if self._file is not None:
            self._file.close()


def short(text, limit=200):
    return text if len(text) <= limit else text[:limit] + f"… ({len(text)} characters)"


def described(request, prompt, step):
    results = [item.text for item in request.items if item.kind == "result"]
    return {
        "protocol": request.protocol,
        "model": request.model,
        "effort": request.effort,
        "tools": sorted(label for tool in request.tools for label in tool.labels),
        "system_hash": hashlib.sha256(request.system.encode()).hexdigest()[:16],
        "system": request.system[:200],
        "messages": request.messages,
        "prompt": short(prompt.strip()),
        "step": step.number,
        "played": step.played,
        "results": [short(text) for text in results],
        "users": "\n".join(short(item.text) for item in request.items if item.kind == "user")[-2000:],
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "stand-in"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self._json(200, {}, body=False)

    def do_GET(self):
        path = urlsplit(self.path).path
        number = self.server.log.number()
        self.server.log.write(n=number, method="GET", path=path)
        if path.endswith("/models"):
            names = self.server.models
            data = [{"id": name, "object": "model", "type": "model", "display_name": name, "created": 0, "owned_by": "stand-in"} for name in names]
            self._json(200, {"object": "list", "data": data, "has_more": False})
        else:
            self._json(404, {"error": {"message": "there is nothing here"}})

    def do_POST(self):
        path = urlsplit(self.path).path
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        number = self.server.log.number()
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            self.server.log.write(n=number, method="POST", path=path, played="no JSON", encoding=self.headers.get("Content-Encoding"))
            self._json(400, {"error": {"message": "the body is no JSON"}})
            return
        if path.endswith(("/messages/count_tokens", ":countTokens")):
            self.server.log.write(n=number, path=path, played="count")
        if path.endswith("/messages/count_tokens"):
            self._json(200, {"input_tokens": max(1, len(raw) // 4)})
            return
        if path.endswith(":countTokens"):
            self._json(200, gemini.count(body))
            return
        protocol = next((module for end, module in _PROTOCOLS if path.endswith(end)), None)
        if protocol is None:
            self.server.log.write(n=number, method="POST", path=path, played="nothing")
            self._json(404, {"error": {"message": "there is nothing here"}})
            return
        request = protocol.read(body, path)
        try:
            prompt, step = due(request)
        except BadScript as error:
            self.server.log.write(n=number, path=path, protocol=request.protocol, played="bad script", error=str(error))
            self._json(418, protocol.failure(418, "bad_script", str(error)))
            return
        if self.server.dump:
            with open(f"{self.server.dump}/{number:04d}.json", "w", encoding="utf-8") as file:
                json.dump({"path": self.path, "headers": dict(self.headers), "body": body}, file, indent=1)
        self.server.log.write(n=number, path=path, **described(request, prompt, step))
        self._play(number, protocol, request, step)

    def _play(self, number, protocol, request, step):
        try:
            if step.error:
                self._wait(step.delay)
                message = step.message or f"the script says {step.error}"
                self._json(step.error, protocol.failure(step.error, step.code, message))
            elif step.garbage:
                self._wait(step.delay)
                self._json(200, {"unexpected": True})
            elif request.stream:
                self._stream(protocol, request, step)
            else:
                self._wait(step.delay)
                self._json(200, protocol.whole(step, request))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
            self.server.log.write(n=number, played="hung up")

    def _stream(self, protocol, request, step):
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        for data in protocol.opening(step, request):
            self.wfile.write(data)
        self.wfile.flush()
        self._wait(step.delay)
        events = list(protocol.stream(step, request))
        for data in events[: len(events) // 2] if step.cut else events:
            self.wfile.write(data)
        self.wfile.flush()

    def _wait(self, seconds):
        """Sleeps until the time has passed or the program has disconnected."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([self.connection], [], [], min(left, 0.5))
            if ready and not self.connection.recv(1, socket.MSG_PEEK):
                raise ConnectionResetError
            if ready:
                time.sleep(min(left, 0.05))

    def _json(self, status, value, body=True):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host="127.0.0.1", port=0, log=None, models=(), dump=None):
        super().__init__((host, port), Handler)
        self.log = Log(log)
        self.models = tuple(models)
        self.dump = dump

    @property
    def url(self):
        return f"http://{self.server_address[0]}:{self.server_address[1]}"

    def server_close(self):
        super().server_close()
        self.log.close()
