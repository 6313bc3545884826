"""Tests of finding a script and of selecting its current step."""

import json
import unittest

from reply import Request
from script import BadScript, Item, Tool, due, encode, find


def written(*steps):
    return "@@" + json.dumps(list(steps)) + "@@"


def request(*items, tools=("shell_tool", "spawn_agent"), protocol="chat"):
    return Request(protocol, items=list(items), tools=[tool if isinstance(tool, Tool) else Tool(tool) for tool in tools])


class Finding(unittest.TestCase):
    def test_a_text_without_a_script(self):
        self.assertEqual(find("mail me@@example"), (None, "mail me@@example"))

    def test_the_rest_of_the_text(self):
        self.assertEqual(find("do " + written({"text": "a"}) + " now"), ([{"text": "a"}], "do  now"))

    def test_the_last_script_of_a_text(self):
        self.assertEqual(find(written({"text": "a"}) + written({"text": "b"}))[0], [{"text": "b"}])

    def test_a_child_s_script_inside_of_a_parent_s(self):
        child = "build it " + written({"tool": "spawn_agent", "args": {"prompt": "test it " + written({"text": "deep"})}})
        script, rest = find("lead " + written({"tool": "spawn_agent", "args": {"prompt": child}}, {"text": "led"}) + " please")
        self.assertEqual(rest, "lead  please")
        self.assertEqual(script[0]["args"]["prompt"], child)
        grandchild = find(script[0]["args"]["prompt"])[0][0]["args"]["prompt"]
        self.assertEqual(find(grandchild), ([{"text": "deep"}], "test it "))

    def test_the_spelling_in_base64(self):
        script = [{"tool": "spawn_agent", "args": {"prompt": 'quote "this" ' + encode([{"text": "deep ☃"}])}}]
        self.assertEqual(find("x " + encode(script) + " y"), (script, "x  y"))

    def test_base64_that_was_wrapped(self):
        text = encode([{"text": "a long text that a program breaks into lines"}])
        self.assertEqual(find(text[:30] + "\n  " + text[30:])[0], [{"text": "a long text that a program breaks into lines"}])

    def test_a_script_that_was_cut_is_none(self):
        self.assertIsNone(find("@@[{\"text\": \"summ…")[0])

    def test_a_script_that_makes_no_sense(self):
        for text in ("@@[{text: a}]@@", "@@b64:AAAA@@", "@@b64:e30=@@"):
            with self.subTest(text), self.assertRaises(BadScript):
                find(text)


class Position(unittest.TestCase):
    def played(self, *items, **options):
        _, step = due(request(*items, **options))
        return step.number, step.text or [call.name for call in step.calls]

    def test_tools_are_counted_by_their_results(self):
        prompt = Item("user", written({"tool": "spawn_agent"}, {"tool": "spawn_agent"}, {"text": "end"}))
        call, result = Item("call", "spawn_agent"), Item("result", "ok")
        self.assertEqual(self.played(prompt), (0, ["spawn_agent"]))
        self.assertEqual(self.played(prompt, call, result), (1, ["spawn_agent"]))
        self.assertEqual(self.played(prompt, call, result, call, result), (2, "end"))

    def test_parallel_tools_are_one_step(self):
        prompt = Item("user", written({"tools": [{"tool": "spawn_agent"}, {"tool": "spawn_agent"}]}, {"text": "end"}))
        self.assertEqual(self.played(prompt), (0, ["spawn_agent", "spawn_agent"]))
        self.assertEqual(self.played(prompt, Item("result")), (0, ["spawn_agent", "spawn_agent"]))
        self.assertEqual(self.played(prompt, Item("result"), Item("result")), (1, "end"))

    def test_texts_are_counted_by_what_was_said(self):
        prompt = Item("user", written({"text": "a"}, {"text": "b"}))
        self.assertEqual(self.played(prompt), (0, "a"))
        self.assertEqual(self.played(prompt, Item("assistant", "a"), Item("user", "go on")), (1, "b"))
        self.assertEqual(self.played(prompt, Item("assistant", "a"), Item("assistant", "b")), (2, "The script is over."))

    def test_an_error_is_played_until_there_is_another_script(self):
        failing = Item("user", written({"error": 500}))
        _, step = due(request(failing, Item("assistant", "half"), Item("user", "again")))
        self.assertEqual(step.played, "error 500")
        self.assertEqual(self.played(failing, Item("user", written({"text": "fine"}))), (0, "fine"))

    def test_the_last_script_counts_and_what_came_before_it_does_not(self):
        first, second = written({"tool": "spawn_agent"}, {"text": "a"}), written({"tool": "spawn_agent"}, {"text": "b"})
        items = [Item("user", first), Item("result"), Item("user", second)]
        self.assertEqual(self.played(*items), (0, ["spawn_agent"]))
        self.assertEqual(self.played(*items, Item("result"), Item("user", "a reminder")), (1, "b"))

    def test_scripts_in_results_and_replies_are_not_played(self):
        script = written({"text": "wrong"})
        items = [Item("user", written({"tool": "spawn_agent"}, {"text": "right"})), Item("result", script)]
        self.assertEqual(self.played(*items), (1, "right"))
        self.assertEqual(self.played(*items, Item("assistant", script))[0], 2)

    def test_no_script(self):
        prompt, step = due(request(Item("user", "hello")))
        self.assertEqual((prompt, step.number, step.calls), ("hello", -1, []))

    def test_a_side_request_without_tools_gets_a_text(self):
        self.assertEqual(self.played(Item("user", written({"tool": "spawn_agent"})), tools=()), (0, "A reply without tools."))

    def test_an_unknown_member_is_a_mistake(self):
        for step in ({"txt": "a"}, "text", {"tool": "x", "arg": {}}):
            with self.subTest(step), self.assertRaises(BadScript):
                due(request(Item("user", written(step))))


class Names(unittest.TestCase):
    def call(self, step, *tools, protocol="chat"):
        return due(request(Item("user", written(step)), tools=tools, protocol=protocol))[1].calls[0]

    def test_the_name_that_the_program_has_given(self):
        for name in ("spawn_agent", "troupe_spawn_agent", "mcp__troupe__spawn_agent"):
            self.assertEqual(self.call({"tool": "spawn_agent"}, "read", name).name, name)

    def test_the_namespace_of_a_tool(self):
        call = self.call({"tool": "spawn_agent"}, Tool("spawn_agent", "troupe"))
        self.assertEqual((call.name, call.namespace), ("spawn_agent", "troupe"))

    def test_a_tool_that_is_not_offered_is_called_as_it_is_written(self):
        for offered in ("read", "respawn_agent", "other_spawn_agent"):
            self.assertEqual(self.call({"tool": "spawn_agent"}, offered).name, "spawn_agent")

    def test_a_shell_command_for_every_program(self):
        for protocol, name, argument in (("responses", "exec_command", "cmd"), ("messages", "Bash", "command"), ("chat", "bash", "command"), ("gemini", "run_shell_command", "command")):
            for offered in (name, "read"):
                call = self.call({"shell": "ls"}, offered, protocol=protocol)
                self.assertEqual((call.name, call.args[argument]), (name, "ls"))

    def test_code_mode(self):
        outer = Tool("exec", "functions", True, ("exec_command", "troupe__spawn_agent"))
        call = self.call({"tool": "spawn_agent", "args": {"prompt": 'say "hi"'}}, outer, protocol="responses")
        self.assertEqual((call.name, call.namespace), ("exec", "functions"))
        self.assertIn('await tools.troupe__spawn_agent({"prompt": "say \\"hi\\""});', call.args)
        self.assertIn("tools.exec_command({", self.call({"shell": "ls"}, outer, protocol="responses").args)
        self.assertEqual(outer.labels, ["functions/exec", "functions/exec:exec_command", "functions/exec:troupe__spawn_agent"])
        self.assertEqual(self.call({"tool": "apply_patch"}, outer, protocol="responses").name, "apply_patch")


if __name__ == "__main__":
    unittest.main()
