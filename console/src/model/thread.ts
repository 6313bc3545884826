// Properties of threads that the page shows, in the words of the command line.

import { statusOf } from "@troupe/client/session_view";

import { shortId } from "../text/format";
import { line } from "../text/sanitize";
import { StatusKind, ValueOrigin, type ResolvedSpawn, type Thread } from "./messages";

export { statusOf };

/** Returns the role and the persona: `explorer`, `reviewer: strict`. */
export function roleOf(thread: Thread): string {
  const role = thread.depth === 0 && thread.agentType === "default" ? "root" : thread.agentType;
  return thread.agentName ? `${role}: ${thread.agentName}` : role;
}

/** Returns a value with its origin: `gpt-5.2 (ROLE)`. */
export function withOrigin({ origins }: Pick<Thread | ResolvedSpawn, "origins">, field: string, value: string | undefined): string {
  const origin = origins[field];
  return value ? `${value}${origin === undefined ? "" : ` (${ValueOrigin[origin]})`}` : "";
}

/** Returns the name of a thread without its role: its alias, its label or its id. */
export function nameOf({ alias, label, threadId }: Thread): string {
  return line(alias || label) || shortId(threadId);
}

/** Returns the role and the name: `explorer scout`. */
export function titleOf(thread: Thread): string {
  return `${line(roleOf(thread))} ${nameOf(thread)}`;
}

/** Describes a thread: its current activity or its last message. */
export function activityOf(thread: Thread): string {
  const message = thread.status?.message ?? "";
  switch (statusOf(thread)) {
    case StatusKind.QUEUED:
      return `place ${thread.queuePosition} in the queue`;
    case StatusKind.PENDING_INIT:
    case StatusKind.RUNNING: {
      const tool = thread.lastTool ? `${thread.lastTool.name} ${thread.lastTool.detail}` : "";
      return thread.activity || tool || thread.threadNote;
    }
    default:
      return message || thread.threadNote;
  }
}

/** Whether a thread has a runner or waits for one. */
export function isActive(thread: Thread): boolean {
  return [StatusKind.PENDING_INIT, StatusKind.RUNNING].includes(statusOf(thread));
}
