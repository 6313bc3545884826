// The tool call that an approval covers.

import { block, line } from "../text/sanitize";

export interface Field {
  readonly name: string;
  readonly value: string;
}

/** Returns the parts of a stored tool call. A text that is no call is one part, so that all of it is shown. */
export function callFields(text: string): Field[] {
  let call: unknown;
  try {
    call = JSON.parse(text);
  } catch {
    return [{ name: "call", value: block(text) }];
  }
  if (!isObject(call)) return [{ name: "call", value: block(text) }];
  const { tool, arguments: args, resolved_paths: paths } = call;
  const given = isObject(args) ? Object.entries(args) : [["arguments", args] as const];
  const known = Array.isArray(paths) && paths.length > 0 ? paths : ["not known"];
  return [
    { name: "tool", value: show(tool) },
    ...given.map(([name, value]) => ({ name: line(name), value: show(value) })),
    { name: known.length > 1 ? "resolved paths" : "resolved path", value: known.map((path) => line(show(path))).join("\n") },
  ];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function show(value: unknown): string {
  return block(typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "");
}
