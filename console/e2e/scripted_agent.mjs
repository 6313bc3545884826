// An agent for tests. It executes lines in order: the lines that a JSON file contains for the task, or else the lines
// of the task itself:
//
//   {...}       a line of the process protocol, which is sent unchanged; a tool call also waits for its result
//   say: TEXT   a line of the turn's message
//   wait: 500   waits for that many milliseconds
//   hold        keeps the turn running until it is interrupted
//
// Other lines have no effect.

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as wait } from "node:timers/promises";

const scripts = JSON.parse(readFileSync(process.argv[2], "utf8"));
const send = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
let interrupt = new AbortController();
let answered = () => undefined;

async function execute(line, signal) {
  if (line === "hold") await once(signal, "abort");
  const [, milliseconds] = /^wait: (\d+)$/.exec(line) ?? [];
  if (milliseconds) await wait(Number(milliseconds), undefined, { signal });
  if (!line.startsWith("{")) return;
  send(JSON.parse(line));
  if (JSON.parse(line).tool_call) await Promise.race([new Promise((resolve) => (answered = resolve)), once(signal, "abort")]);
}

async function turn(task) {
  interrupt = new AbortController();
  const { signal } = interrupt;
  const lines = scripts[task] ?? task.split("\n");
  for (const line of lines) if (!signal.aborted) await execute(line, signal).catch(() => undefined);
  const message = lines.flatMap((line) => /^say: (.*)/.exec(line)?.[1] ?? []).join("\n");
  send({ type: "turn_end", outcome: signal.aborted ? "interrupted" : "completed", message });
}

for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text);
  if (line.type === "turn") void turn(line.inputs.at(-1) ?? "");
  if (line.type === "tool_result") answered();
  if (line.type === "interrupt") interrupt.abort();
  if (line.type === "shutdown") process.exit();
}
