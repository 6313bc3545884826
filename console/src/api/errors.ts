// Errors of calls as texts for people.

import { Code, ConnectError } from "@connectrpc/connect";

import { ErrorInfoSchema } from "@sdk/google/rpc/error_details_pb.js";
import { line } from "../text/sanitize";

/** The error of a call. */
export class CallError extends Error {
  readonly code: Code;
  /** The stable reason; empty if the error does not come from a service of Troupe. */
  readonly reason: string;
  /** The variable parts of the message, by name. */
  readonly metadata: Readonly<Record<string, string>>;

  constructor(message: string, code: Code, reason: string, metadata: Readonly<Record<string, string>>) {
    super(message);
    this.code = code;
    this.reason = reason;
    this.metadata = metadata;
  }

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
  const cause = ConnectError.from(error);
  const { reason = "", metadata = {} } = cause.findDetails(ErrorInfoSchema)[0] ?? {};
  const hint = HINTS[reason] ?? "";
  const text = line(cause.rawMessage) || Code[cause.code];
  return new CallError([text, hint].filter(Boolean).join(". "), cause.code, reason, metadata);
}

export function messageOf(error: unknown): string {
  return callErrorOf(error).message;
}
