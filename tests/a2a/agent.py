#!/usr/bin/env python3
"""An agent program for the conformance kit. It speaks docs/process-protocol.md.

The kit selects the behaviour of an agent by the start of a message's id (scenarios/*.feature in the kit). The A2A port
adds the id as the last line of an input, because tests/a2a/kit.yaml sets `show_message_ids`.
"""

import json
import re
import sys
import threading
import time

INTERRUPTED = threading.Event()
# Set while a turn accepts more input, and set when the input has arrived.
HELD, WOKEN = threading.Event(), threading.Event()
ANSWERS: dict[str, threading.Event] = {}
LOCK = threading.Lock()
FILE = {"name": "output.txt", "media_type": "text/plain"}


def send(line: dict) -> None:
    with LOCK:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def call(name: str, args: dict) -> None:
    """Calls a tool and waits for the result."""
    call_id = f"call-{time.monotonic_ns()}"
    answered = ANSWERS[call_id] = threading.Event()
    send({"tool_call": {"id": call_id, "name": name, "args": args}})
    answered.wait(10)


def wait(seconds: float) -> None:
    INTERRUPTED.wait(seconds)


def hold() -> None:
    """Waits for more input or an interrupt. Either may already have arrived."""
    WOKEN.wait(60)
    HELD.clear()


def work(text: str) -> tuple[str, str]:
    """Returns the outcome and the last message of a turn."""
    found = re.findall(r"^A2A message (\S+)$", text, re.MULTILINE)
    message_id = found[-1] if found else ""
    name = message_id.removeprefix("tck-")
    if message_id.startswith("test-resubscribe"):
        wait(5)
        return "completed", "done"
    if name.startswith("input-required"):
        call("ask_parent", {"question": "What next?"})
        return "completed", "I need an answer."
    if name.startswith("reject-task"):
        return "errored", "rejected"
    if name.startswith("artifact-file-url"):
        send({"type": "file", **FILE, "url": "https://example.com/output.txt"})
        return "completed", ""
    if name.startswith(("artifact-file", "stream-artifact-file")):
        send({"type": "file", **FILE, "text": "Generated file content"})
        return "completed", ""
    if name.startswith("artifact-data"):
        return "completed", '{"key": "value", "count": 42}'
    if name.startswith("stream"):
        # A short time in which the task is working.
        wait(0.3)
    if "hold" in text:
        hold()
    texts = {
        "artifact-text": "Generated text content",
        "stream-001": "Stream hello from TCK",
        "stream-003": "Stream task lifecycle",
        "stream-ordering-001": "Ordered output",
        "stream-artifact-text": "Streamed text content",
        "stream-artifact-chunked": "chunk-1 chunk-2",
    }
    for prefix, answer in texts.items():
        if name.startswith(prefix):
            return "completed", answer
    return "completed", "Hello from TCK"


def turn(line: dict) -> None:
    send({"type": "status", "activity": "working"})
    outcome, message = work("\n".join(line["inputs"]))
    if INTERRUPTED.is_set():
        outcome, message = "interrupted", "interrupted"
    send({"type": "turn_end", "outcome": outcome, "message": message})


def main() -> None:
    for text in sys.stdin:
        line = json.loads(text)
        kind = line.get("type")
        if kind == "turn":
            INTERRUPTED.clear()
            WOKEN.clear()
            if any("hold" in text for text in line["inputs"]):
                HELD.set()
            threading.Thread(target=turn, args=(line,), daemon=True).start()
        elif kind == "tool_result":
            answered = ANSWERS.pop(line["id"], None)
            if answered:
                answered.set()
        elif kind == "input" and HELD.is_set():
            send({"type": "input_taken", "number": line["number"]})
            WOKEN.set()
        elif kind == "interrupt":
            INTERRUPTED.set()
            WOKEN.set()
        elif kind == "shutdown":
            return


if __name__ == "__main__":
    main()
