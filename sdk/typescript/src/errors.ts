// The errors of this package. reasons.ts has one class per reason of the services.

import { Code } from "@connectrpc/connect";

import type { Result } from "./client.js";
import type { SchemaIssue } from "./schema.js";

/** Reasons after which the same call, with the same request id, may succeed. */
const TRANSIENT_REASONS = new Set([
  "DRAINING",
  "SESSION_MOVING",
  "OVERLOADED",
  "RATE_LIMITED",
  "REGISTRY_UNAVAILABLE",
  "OUTCOME_UNKNOWN",
]);
/** Codes of a lost connection. They are transient only without a reason: then the transport reports them. */
const TRANSIENT_CODES = new Set([Code.Unavailable, Code.Unknown, Code.Canceled, Code.Internal]);

/** The base class of all errors of this package. Each class states its name, because bundlers shorten names of classes. */
export class TroupeError extends Error {
  static override readonly name: string = "TroupeError";

  override get name(): string {
    return this.constructor.name;
  }
}

/** An address, a token file or a certificate is missing or invalid. */
export class ConfigError extends TroupeError {
  static override readonly name: string = "ConfigError";
}

/** The parts of a service's error. */
export interface ServiceErrorInit {
  readonly code: Code;
  readonly reason?: string;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/**
 * An error that a service returned, or the failure to reach the service.
 *
 * Decide by the class or by `reason`: texts may change, reasons do not. An error of the transport and an error with a reason
 * that this release does not know have the class `ServiceError` itself.
 */
export class ServiceError extends TroupeError {
  static override readonly name: string = "ServiceError";

  /** The gRPC code. */
  readonly code: Code;
  /** The stable reason; empty if the error does not come from a service of Troupe. */
  readonly reason: string;
  /** The variable parts of the message, by name. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Milliseconds after which a retry may succeed; undefined if the service does not say. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, { code, reason = "", metadata = {}, retryAfterMs, cause }: ServiceErrorInit) {
    super(message, { cause });
    this.code = code;
    this.reason = reason;
    this.metadata = metadata;
    this.retryAfterMs = retryAfterMs;
  }

  /** Whether the same call may succeed later. The client retries such calls by itself. */
  get isTransient(): boolean {
    return this.reason ? TRANSIENT_REASONS.has(this.reason) : TRANSIENT_CODES.has(this.code);
  }
}

/** A thread settled without completing its turn. */
export class AgentError extends TroupeError {
  static override readonly name: string = "AgentError";

  constructor(
    /** The thread's status. */
    readonly result: Result,
  ) {
    const text = result.status.message || result.status.reason || "no message";
    super(`thread ${result.threadId} is ${result.kind}: ${text}`);
  }
}

/** The last turn of the thread failed. */
export class AgentFailedError extends AgentError {
  static override readonly name: string = "AgentFailedError";
}

/** The last turn of the thread was stopped. */
export class AgentInterruptedError extends AgentError {
  static override readonly name: string = "AgentInterruptedError";
}

/** The thread is closed. */
export class AgentClosedError extends AgentError {
  static override readonly name: string = "AgentClosedError";
}

/** A result matches the JSON Schema of the service, but the schema in this program rejects the result. */
export class ResultMismatchError extends TroupeError {
  static override readonly name: string = "ResultMismatchError";

  constructor(
    readonly threadId: string,
    /** The result; undefined if there is none. */
    readonly value: unknown,
    readonly issues: readonly SchemaIssue[],
  ) {
    super(`the result of thread ${threadId} does not match its schema: ${issues.map(textOfIssue).join("; ")}`);
  }
}

function textOfIssue({ path = [], message }: SchemaIssue): string {
  const keys = path.map((key) => String(typeof key === "object" ? key.key : key));
  return keys.length > 0 ? `${keys.join(".")}: ${message}` : message;
}
