// Calls of the supervisor: token, deadline, request id, retries, and the conversion of errors. Browsers use this module too,
// so it imports nothing of Node.js.

import { clone, create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import { durationMs } from "@bufbuild/protobuf/wkt";
import {
  Code,
  ConnectError,
  createClient,
  type CallOptions,
  type Client as Stub,
  type Interceptor,
  type Transport,
} from "@connectrpc/connect";

import { ConfigError, ServiceError, TroupeError } from "./errors.js";
import { ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { AgentSupervisorService } from "./gen/troupe/supervisor/v1/supervisor_pb.js";
import { BY_REASON, DeadlineExceededError } from "./reasons.js";

const DOMAIN = "troupe.dev";

/** Deadlines in milliseconds, as in proto/service-config.json. */
const DEADLINE_MS = 30_000;
const DEADLINES_MS: Readonly<Record<string, number>> = {
  CreateSession: 150_000,
  SpawnAgent: 150_000,
  DescribeTools: 150_000,
  ListSpawnableAgents: 150_000,
  CloseSession: 45_000,
  CloseAgent: 45_000,
  WaitAgents: 1_830_000,
  AuthorizeTool: 630_000,
};

/** The methods of the supervisor. */
export type Supervisor = Stub<typeof AgentSupervisorService>;

/**
 * The number of attempts at a call and the delays between them, after transient errors. A delay that the service requests
 * replaces the computed delay.
 */
export interface RetryPolicy {
  readonly attempts: number;
  readonly initialDelayMs: number;
  readonly maxDelayMs: number;
  readonly multiplier: number;
}

export const DEFAULT_RETRY: RetryPolicy = { attempts: 5, initialDelayMs: 500, maxDelayMs: 5_000, multiplier: 2 };

/** Decides whether to try again after a transient error, and waits before the next attempt. */
export class Backoff {
  #failures = 0;
  #since = 0;

  /** Limits the attempts as the policy says. With `totalMs`, limits the time since the first failure instead. */
  constructor(
    private readonly policy: RetryPolicy,
    private readonly totalMs?: number,
  ) {}

  /** Forgets earlier failures. */
  reset(): void {
    this.#failures = 0;
  }

  /** Waits before the next attempt. Throws the error if it is permanent or there is no further attempt. */
  async wait(error: ServiceError, signal?: AbortSignal): Promise<void> {
    if (this.#failures === 0) this.#since = performance.now();
    this.#failures += 1;
    const isOver =
      this.totalMs === undefined
        ? this.#failures >= this.policy.attempts
        : performance.now() - this.#since >= this.totalMs;
    if (isOver || !error.isTransient) throw error;
    const { initialDelayMs, maxDelayMs, multiplier } = this.policy;
    const exponential = Math.min(initialDelayMs * multiplier ** (this.#failures - 1), maxDelayMs);
    await pause(error.retryAfterMs ?? exponential * (0.8 + Math.random() * 0.4), signal);
  }
}

/** Waits. If the signal is aborted, throws the reason of the signal at once. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, ms);
    const end = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    signal?.addEventListener("abort", end, { once: true });
  });
}

/** The source of the caller's token. */
export interface TokenSource {
  /** Whether the token was found in the data directory and not given. Such a token may belong to another service. */
  readonly isFound: boolean;
  /** Returns the current token, or an empty text if there is no token. */
  expose(): string;
}

/** Returns the token. Throws a ConfigError unless a header can contain it. */
export function checkedToken(token: string): string {
  if (/^[!-~]*$/.test(token)) return token;
  throw new ConfigError("the token has characters that cannot be sent; use visible ASCII characters only");
}

/** The transport of messages to the supervisor. */
export interface Connection {
  readonly transport: Transport;
  close(): void;
}

/** A connection to the supervisor and the token of the caller. */
export class Caller {
  readonly transport: Transport;
  /** The methods without retries, for streams and for calls with a loop of their own. */
  readonly raw: Supervisor;
  /** The methods. A unary call has a request id and a deadline, and is repeated after a transient error. */
  readonly stub: Supervisor;
  readonly #token: TokenSource;
  readonly #connection: Connection;
  readonly #closed = new AbortController();
  /** The token from the data directory that the service rejected. Calls do not send it. Empty: none was rejected. */
  #rejected = "";

  /** Opens the connection with `open`. All calls of the connection must pass through the interceptor. */
  constructor(
    open: (interceptor: Interceptor) => Connection,
    token: TokenSource,
    readonly policy: RetryPolicy,
  ) {
    this.#token = token;
    this.#connection = open((next) => async (request) => {
      const text = this.#token.expose();
      if (text && text !== this.#rejected) request.header.set("authorization", `Bearer ${text}`);
      // Every call ends with `close`. Otherwise a call that has just begun could open the closed connection again.
      return next({ ...request, signal: AbortSignal.any([this.#closed.signal, request.signal]) });
    });
    this.transport = this.#connection.transport;
    this.raw = createClient(AgentSupervisorService, this.transport);
    this.stub = this.#withRetries();
  }

  /** Closes the connection and ends the calls, streams and waits. */
  close(): void {
    this.#closed.abort(new TroupeError("the client is closed"));
    this.#connection.close();
  }

  /** Waits until the call can be repeated. Throws the error if it cannot be repeated. */
  async recover(failure: unknown, backoff: Backoff, signal?: AbortSignal): Promise<void> {
    const ended = AbortSignal.any([this.#closed.signal, ...(signal ? [signal] : [])]);
    ended.throwIfAborted();
    const error = serviceError(failure);
    if (!this.#dropsToken(error)) await backoff.wait(error, ended);
  }

  /** Repeats an attempt after a transient error. */
  async repeat<T>(attempt: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const backoff = new Backoff(this.policy);
    for (;;) {
      try {
        return await attempt();
      } catch (failure) {
        await this.recover(failure, backoff, signal);
      }
    }
  }

  /** Makes a call that waits at the service. Repeats the call after an expired deadline or a transient error. */
  async wait<T>(call: () => Promise<T>, backoff: Backoff, signal?: AbortSignal): Promise<T> {
    for (;;) {
      signal?.throwIfAborted();
      try {
        const answer = await call();
        backoff.reset();
        return answer;
      } catch (failure) {
        if (failure instanceof TroupeError) throw failure;
        signal?.throwIfAborted();
        if (ConnectError.from(failure).code !== Code.DeadlineExceeded) await this.recover(failure, backoff, signal);
      }
    }
  }

  /**
   * Stops using a token from the data directory that the service rejected: it belongs to another service. Returns
   * whether to repeat the call, now without the token.
   */
  #dropsToken(error: ServiceError): boolean {
    const token = this.#token.expose();
    if (error.code !== Code.Unauthenticated || !this.#token.isFound || token === this.#rejected) return false;
    this.#rejected = token;
    return true;
  }

  #withRetries(): Supervisor {
    type Unary = (request: MessageInitShape<DescMessage>, options: CallOptions) => Promise<unknown>;
    const stub: Record<string, unknown> = { ...this.raw };
    for (const method of AgentSupervisorService.methods) {
      if (method.methodKind !== "unary") continue;
      const unary = stub[method.localName] as Unary;
      stub[method.localName] = (init: MessageInitShape<DescMessage>, options: CallOptions = {}) => {
        const request = clone<DescMessage>(method.input, create<DescMessage>(method.input, init));
        if ("requestId" in request && request.requestId === "") request.requestId = newRequestId();
        const timeoutMs = options.timeoutMs ?? DEADLINES_MS[method.name] ?? DEADLINE_MS;
        return this.repeat(() => unary(request, { ...options, timeoutMs }), options.signal);
      };
    }
    return stub as Supervisor;
  }
}

/** Returns a random id that makes a repeated call safe. `crypto.randomUUID` is not available to pages without TLS. */
export function newRequestId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Converts an error into one of the class that belongs to its reason. The calls of this package throw such errors; the
 * streams of `Client.stub` throw errors of the transport.
 */
export function serviceError(failure: unknown): ServiceError {
  if (failure instanceof ServiceError) return failure;
  const error = ConnectError.from(failure);
  const info = error.findDetails(ErrorInfoSchema).find(({ domain }) => domain === DOMAIN);
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
  // An error with a cause comes from the client: Connect reports a connection that was reset as ABORTED.
  const isReset = error.code === Code.Aborted && error.cause !== undefined;
  const init = {
    code: isReset ? Code.Unavailable : error.code,
    reason: info?.reason ?? "",
    metadata: info?.metadata ?? {},
    retryAfterMs: delay && durationMs(delay),
    cause: failure,
  };
  if (!info && error.code === Code.DeadlineExceeded) {
    // This process ended the call at its deadline. The error means the same as the service's own error.
    return new DeadlineExceededError(error.rawMessage, init);
  }
  return new (BY_REASON[init.reason] ?? ServiceError)(error.rawMessage, init);
}
