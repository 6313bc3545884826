// The tool of the examples.

import { readFile as read, realpath } from "node:fs/promises";
import { resolve, sep } from "node:path";

import type { Task } from "@troupe/client/runner";

const MAX_FILE = 64 * 1024;

/** The arguments of the tool. */
export interface ReadFile {
  readonly path: string;
}

/** The description of the tool for the model. */
export const READ_FILE = {
  name: "read_file",
  description: "Reads a text file of the project.",
  parameters: { type: "object", required: ["path"], properties: { path: { type: "string" } } },
};

/** Reads a file below the working directory, if the thread may use the tool. Returns what the model receives. */
export async function readFile(task: Task, args: ReadFile): Promise<string> {
  const decision = await task.authorize(READ_FILE.name, args);
  if (!decision.allowed) return decision.reason;
  let text: string;
  try {
    const project = await realpath(task.workingDirectory);
    const path = await realpath(resolve(project, args.path));
    if (!path.startsWith(project + sep)) return `${path} is not in the project`;
    text = (await read(path, "utf8")).slice(0, MAX_FILE);
  } catch (error) {
    text = `cannot read ${args.path}: ${error}`;
  }
  task.record("toolResult", text);
  return text;
}
