// The tool call that an approval covers.

import { visible, visibleLine } from "../text/sanitize";

export interface Field {
  readonly name: string;
  readonly value: string;
}

/** Matches a string or a number in JSON. */
const TOKEN = /"(?:[^"\\]+|\\.)*"|-?\d[\d.eE+-]*/g;

/**
 * Returns the parts of a stored tool call. A text that is no call is one part, so that all of it is shown. Unsafe
 * characters are shown as their codes, and numbers as they are written, so that the parts are the call that will run.
 */
export function callFields(text: string): Field[] {
  const whole = [{ name: "call", value: visible(text) }];
  // JavaScript rounds long numbers, so numbers become strings with a random mark, which no call can contain.
  const mark = `number ${Math.random().toString(36).slice(2)} `;
  let call: unknown;
  try {
    call = JSON.parse(text.replace(TOKEN, (token) => (isExact(token) ? token : `"${mark}${token}"`)));
  } catch {
    return whole;
  }
  if (!isObject(call)) return whole;
  const show = (value: unknown) => {
    const shown = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
    return shown.replace(new RegExp(`"?${mark}([\\d.eE+-]+)"?`, "g"), "$1");
  };
  const { tool, arguments: args, resolved_paths: paths } = call;
  const given = isObject(args) ? Object.entries(args) : [["arguments", args] as const];
  const known = Array.isArray(paths) && paths.length > 0 ? paths : ["not known"];
  return [
    { name: "tool", value: visible(show(tool)) },
    ...given.map(([name, value]) => ({ name: visibleLine(name), value: visible(show(value)) })),
    {
      name: known.length > 1 ? "resolved paths" : "resolved path",
      value: known.map((path) => visibleLine(show(path))).join("\n"),
    },
  ];
}

function isExact(token: string): boolean {
  return token.startsWith('"') || String(Number(token)) === token;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
