"""Tests of the four protocols over HTTP, from the view of a program."""

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from server import Server

HERE = Path(__file__).parent
STEPS = [{"tool": "spawn_agent", "args": {"prompt": "hi"}}, {"text": "a text of several pieces, so that it streams", "think": "hm"}]


def scripted(*steps):
    return "do it @@" + json.dumps(steps or STEPS) + "@@"


def responses(text, results=(), **more):
    calls = [{"type": "function_call", "call_id": str(i), "name": "spawn_agent", "arguments": "{}"} for i, _ in enumerate(results)]
    outputs = [{"type": "function_call_output", "call_id": str(i), "output": result} for i, result in enumerate(results)]
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You build."}]}
    spawn = {"type": "namespace", "name": "troupe", "tools": [{"type": "function", "name": "spawn_agent"}]}
    body = {"model": "m", "reasoning": {"effort": "low"}, "input": [developer, message, *calls, *outputs], "tools": [spawn, {"type": "custom", "name": "apply_patch"}]}
    return "/v1/responses", {**body, **more}


def chat(text, results=(), **more):
    calls = [{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "troupe_spawn_agent", "arguments": "{}"}}]} for _ in results]
    outputs = [{"role": "tool", "tool_call_id": "1", "content": result} for result in results]
    messages = [{"role": "system", "content": "You build."}, {"role": "user", "content": text}, *calls, *outputs]
    tools = [{"type": "function", "function": {"name": "troupe_spawn_agent"}}]
    return "/v1/chat/completions", {"model": "m", "reasoning_effort": "low", "messages": messages, "tools": tools, **more}


def messages(text, results=(), **more):
    calls = [{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "mcp__troupe__spawn_agent", "input": {}}]} for _ in results]
    outputs = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": result}]}]} for result in results]
    user = {"role": "user", "content": [{"type": "text", "text": "<system-reminder>"}, {"type": "text", "text": text}]}
    body = {"model": "m", "system": [{"type": "text", "text": "You build."}], "output_config": {"effort": "low"}, "messages": [user, *calls, *outputs]}
    return "/v1/messages?beta=true", {**body, "tools": [{"name": "mcp__troupe__spawn_agent"}], **more}


def gemini(text, results=(), stream=False):
    calls = [{"role": "model", "parts": [{"functionCall": {"name": "mcp_troupe_spawn_agent", "args": {}}}]} for _ in results]
    outputs = [{"role": "user", "parts": [{"functionResponse": {"name": "x", "response": {"output": result}}}]} for result in results]
    body = {
        "systemInstruction": {"parts": [{"text": "You build."}]},
        "generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}},
        "contents": [{"role": "user", "parts": [{"text": text}]}, *calls, *outputs],
        "tools": [{"functionDeclarations": [{"name": "mcp_troupe_spawn_agent"}]}],
    }
    return "/v1beta/models/m:" + ("streamGenerateContent?alt=sse" if stream else "generateContent"), body


PROTOCOLS = {"responses": responses, "chat": chat, "messages": messages, "gemini": gemini}


class Running(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.log = Path(self.directory.name, "log")
        self.server = Server(log=self.log, models=["m"])
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(self.directory.cleanup)
        self.addCleanup(self.server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)

    def ask(self, path, body=None):
        connection = http.client.HTTPConnection(*self.server.server_address, timeout=10)
        self.addCleanup(connection.close)
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def whole(self, path, body):
        status, text = self.ask(path, body)
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def events(self, path, body):
        status, text = self.ask(path, body)
        self.assertEqual(status, 200, text)
        data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        return [json.loads(one) for one in data if one != "[DONE]"]

    def logged(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


class Protocols(Running):
    def test_responses(self):
        first = self.whole(*responses(scripted()))
        call = first["output"][0]
        self.assertEqual((call["type"], call["name"], call["namespace"], call["arguments"]), ("function_call", "spawn_agent", "troupe", '{"prompt": "hi"}'))
        events = self.events(*responses(scripted(), ["ok"], stream=True))
        self.assertEqual([event["type"] for event in events][:1] + [events[-1]["type"]], ["response.created", "response.completed"])
        text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        self.assertEqual(text, STEPS[1]["text"])
        done = [event["item"]["type"] for event in events if event["type"] == "response.output_item.done"]
        self.assertEqual(done, ["reasoning", "message"])
        self.assertEqual(events[-1]["response"]["usage"]["total_tokens"], 1120)

    def test_a_freeform_tool_of_responses(self):
        call = self.whole(*responses(scripted({"tool": "apply_patch", "args": "*** Begin Patch"})))["output"][0]
        self.assertEqual((call["type"], call["input"]), ("custom_tool_call", "*** Begin Patch"))

    def test_chat(self):
        first = self.whole(*chat(scripted()))["choices"][0]
        function = first["message"]["tool_calls"][0]["function"]
        self.assertEqual((first["finish_reason"], function["name"], function["arguments"]), ("tool_calls", "troupe_spawn_agent", '{"prompt": "hi"}'))
        events = self.events(*chat(scripted(), ["ok"], stream=True))
        deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
        self.assertEqual("".join(delta.get("content") or "" for delta in deltas), STEPS[1]["text"])
        self.assertEqual("".join(delta.get("reasoning_content") or "" for delta in deltas), "hm")
        self.assertEqual(events[-1]["usage"]["total_tokens"], 1120)

    def test_messages(self):
        first = self.whole(*messages(scripted()))
        self.assertEqual((first["stop_reason"], first["content"][0]["name"], first["content"][0]["input"]), ("tool_use", "mcp__troupe__spawn_agent", {"prompt": "hi"}))
        events = self.events(*messages(scripted(), ["ok"], stream=True))
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        self.assertEqual("".join(delta.get("text", "") for delta in deltas), STEPS[1]["text"])
        self.assertEqual("".join(delta.get("thinking", "") for delta in deltas), "hm")
        self.assertEqual((events[0]["type"], events[-1]["type"]), ("message_start", "message_stop"))
        self.assertEqual(events[-2]["usage"]["output_tokens"], 20)
        self.assertIn("input_tokens", self.whole("/v1/messages/count_tokens?beta=true", messages(scripted())[1]))

    def test_tool_arguments_in_the_pieces_of_a_stream(self):
        arguments = {"prompt": "longer than one piece of a stream"}
        events = self.events(*messages(scripted({"tool": "spawn_agent", "args": arguments}), stream=True))
        pieces = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
        self.assertEqual(json.loads("".join(pieces)), arguments)
        self.assertGreater(len(pieces), 1)

    def test_what_is_said_to_claude_during_a_turn(self):
        path, body = messages(scripted(), ["ok"])
        body["messages"].append({"role": "system", "content": [{"type": "text", "text": "The user sent " + scripted({"text": "steered"})}]})
        self.assertEqual(self.whole(path, body)["content"][0]["text"], "steered")

    def test_gemini(self):
        first = self.whole(*gemini(scripted()))["candidates"][0]["content"]["parts"][0]
        self.assertEqual(first["functionCall"], {"name": "mcp_troupe_spawn_agent", "args": {"prompt": "hi"}})
        events = self.events(*gemini(scripted(), ["ok"], stream=True))
        parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
        self.assertEqual("".join(part["text"] for part in parts if not part.get("thought")), STEPS[1]["text"])
        self.assertEqual(events[-1]["usageMetadata"]["totalTokenCount"], 1120)
        self.assertIn("totalTokens", self.whole("/v1beta/models/m:countTokens", {"contents": []}))

    def test_parallel_calls(self):
        step = {"tools": [{"tool": "spawn_agent", "args": {"prompt": str(i)}} for i in range(3)]}
        for name, protocol in PROTOCOLS.items():
            with self.subTest(name):
                self.assertEqual(json.dumps(self.whole(*protocol(scripted(step)))).count("spawn_agent"), 3)

    def test_garbage(self):
        for name, protocol in PROTOCOLS.items():
            with self.subTest(name):
                status, text = self.ask(*protocol(scripted({"garbage": True})))
                self.assertEqual((status, json.loads(text)), (200, {"unexpected": True}))

    def test_errors(self):
        for name, protocol in PROTOCOLS.items():
            with self.subTest(name):
                status, text = self.ask(*protocol(scripted({"error": 429, "message": "slow down"})))
                self.assertEqual((status, json.loads(text)["error"]["message"]), (429, "slow down"))
                status, text = self.ask(*protocol("@@[nonsense]@@"))
                self.assertEqual(status, 418)

    def test_a_stream_that_is_cut(self):
        for name in ("responses", "chat", "messages"):
            with self.subTest(name):
                events = self.events(*PROTOCOLS[name](scripted({"text": "abcdefgh" * 8, "cut": True}), stream=True))
                self.assertNotIn(events[-1].get("type"), ("response.completed", "message_stop"))
                self.assertGreater(len(events), 1)

    def test_usage_that_a_step_sets(self):
        usage = self.whole(*responses(scripted({"text": "a", "usage": {"input": 250000}})))["usage"]
        self.assertEqual((usage["input_tokens"], usage["output_tokens"]), (250000, 20))


class Logging(Running):
    def test_a_line_for_each_request(self):
        for protocol in PROTOCOLS.values():
            self.whole(*protocol(scripted(), ["first result"]))
        for entry, name in zip(self.logged(), PROTOCOLS):
            with self.subTest(name):
                self.assertEqual((entry["protocol"], entry["model"], entry["effort"]), (name, "m", "low"))
                self.assertEqual((entry["system"], entry["prompt"], entry["step"]), ("You build.", "do it", 1))
                self.assertEqual((entry["results"], entry["played"]), (["first result"], "text"))
                self.assertTrue(any(tool.endswith("spawn_agent") for tool in entry["tools"]))
        self.assertEqual(len({entry["system_hash"] for entry in self.logged()}), 1)

    def test_tools_are_logged_with_their_namespace(self):
        self.whole(*responses(scripted()))
        self.assertEqual(self.logged()[0]["tools"], ["apply_patch", "troupe/spawn_agent"])

    def test_the_tools_of_code_mode_are_logged(self):
        described = "declare const tools: { exec_command(args: {}): void }\nand\ndeclare const tools: { troupe__spawn_agent(args: {}): void }"
        outer = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec", "description": described}]}
        path, body = responses(scripted(), tools=None)
        body["input"].insert(0, {"type": "additional_tools", "tools": [outer]})
        call = self.whole(path, body)["output"][0]
        self.assertEqual((call["type"], call["name"], call["namespace"]), ("custom_tool_call", "exec", "functions"))
        self.assertEqual(self.logged()[0]["tools"], ["functions/exec", "functions/exec:exec_command", "functions/exec:troupe__spawn_agent"])

    def test_a_program_that_hangs_up_ends_a_delay(self):
        path, body = responses(scripted({"text": "late", "delay": 60}), stream=True)
        data = json.dumps(body).encode()
        connection = socket.create_connection(self.server.server_address)
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        connection.recv(4096)
        connection.close()
        until = time.monotonic() + 5
        while self.logged()[-1].get("played") != "hung up" and time.monotonic() < until:
            time.sleep(0.02)
        self.assertEqual(self.logged()[-1], {"n": 1, "played": "hung up"})

    def test_models_and_nothing(self):
        self.assertEqual(json.loads(self.ask("/v1/models")[1])["data"][0]["id"], "m")
        self.assertEqual(self.ask("/v1/elsewhere")[0], 404)
        self.assertEqual(self.ask("/v1/elsewhere", {})[0], 404)


class CommandLine(unittest.TestCase):
    def test_the_ready_file_holds_the_url(self):
        with tempfile.TemporaryDirectory() as directory:
            ready, log = Path(directory, "ready"), Path(directory, "log")
            command = [sys.executable, HERE, "--port", "0", "--ready-file", ready, "--log", log]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}) as process:
                try:
                    until = time.monotonic() + 10
                    while not ready.exists() and time.monotonic() < until:
                        time.sleep(0.02)
                    address = ready.read_text().strip().removeprefix("http://")
                    connection = http.client.HTTPConnection(address, timeout=10)
                    connection.request("GET", "/v1/models")
                    self.assertEqual(connection.getresponse().status, 200)
                    connection.close()
                finally:
                    process.terminate()
                self.assertEqual(process.wait(10), 0)
            self.assertEqual(json.loads(log.read_text())["path"], "/v1/models")


if __name__ == "__main__":
    unittest.main()
