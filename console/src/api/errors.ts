// Errors of calls as texts for people.

import { Code } from "@connectrpc/connect";
import { serviceError, ServiceError } from "@troupe/client/web";

import { line } from "../text/sanitize";

/** The error of a call, with a text for people. */
export class CallError extends ServiceError {
  /** Whether the login has ended. */
  get isLogin(): boolean {
    return this.code === Code.Unauthenticated;
  }
}

const HINTS: Readonly<Record<string, string>> = {
  BUDGET_EXHAUSTED: "Raise the budget first.",
  NOT_PERMITTED: "Only operators may do this.",
  SESSION_CLOSED: "The session is closed.",
  SESSION_PAUSED: "Resume the session first.",
  THREAD_CLOSED: "Reopen the thread first.",
  THREAD_CLOSING: "Wait until the thread is closed.",
  THREAD_LIMIT: "Wait for a slot, or close a thread.",
  OPEN_LIMIT: "Close threads that are no longer necessary.",
  DRAINING: "Try again in a moment.",
  OVERLOADED: "Try again in a moment.",
};

export function callErrorOf(error: unknown): CallError {
  if (error instanceof CallError) return error;
  const { code, reason, metadata, message } = serviceError(error);
  const text = [line(message) || Code[code], HINTS[reason]].filter(Boolean).join(". ");
  return new CallError(text, { code, reason, metadata });
}

export function messageOf(error: unknown): string {
  return callErrorOf(error).message;
}
