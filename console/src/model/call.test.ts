import { expect, test } from "vitest";

import { callFields } from "./call";

test("call_is_shown_in_full", () => {
  const call = { tool: "exec_command", arguments: { command: "a\nb", env: { X: 1 } }, resolved_paths: ["/w/a"] };
  expect(callFields(JSON.stringify(call))).toEqual([
    { name: "tool", value: "exec_command" },
    { name: "command", value: "a\nb" },
    { name: "env", value: '{\n  "X": 1\n}' },
    { name: "resolved path", value: "/w/a" },
  ]);
});

test("argument_names_cannot_imitate_fields", () => {
  const fields = callFields(JSON.stringify({ tool: "x", arguments: { "a\n\u202epath": "b" }, resolved_paths: [] }));
  expect(fields.map(({ name }) => name)).toEqual(["tool", "a\\u{a}\\u{202e}path", "resolved path"]);
  expect(fields[2]?.value).toBe("not known");
});

test("unsafe_characters_of_a_call_are_visible", () => {
  const call = { tool: "x", arguments: { command: "ls \x1b]; rm -rf ~\r\u202e" }, resolved_paths: ["/w/a\n/w/b"] };
  const values = callFields(JSON.stringify(call)).map(({ value }) => value);
  expect(values).toEqual(["x", "ls \\u{1b}]; rm -rf ~\\u{d}\\u{202e}", "/w/a\\u{a}/w/b"]);
  expect(callFields("no \x1b]call")).toEqual([{ name: "call", value: "no \\u{1b}]call" }]);
});

test("long_numbers_of_a_call_are_exact", () => {
  const args = '{"id":9007199254740993,"list":[1.50,{"n":-12345678901234567890}],"text":"9007199254740993"}';
  const values = callFields(`{"tool":"x","arguments":${args},"resolved_paths":[]}`).map(({ value }) => value);
  expect(values[1]).toBe("9007199254740993");
  expect(values[2]).toBe('[\n  1.50,\n  {\n    "n": -12345678901234567890\n  }\n]');
  expect(values[3]).toBe("9007199254740993");
});

test.each(["no JSON", "[1]", "null"])("text %s that is no call is shown as it is", (text) => {
  expect(callFields(text)).toEqual([{ name: "call", value: text }]);
});
