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
  expect(fields.map(({ name }) => name)).toEqual(["tool", "a path", "resolved path"]);
  expect(fields[2]?.value).toBe("not known");
});

test.each(["no JSON", "[1]", "null"])("text %s that is no call is shown as it is", (text) => {
  expect(callFields(text)).toEqual([{ name: "call", value: text }]);
});
