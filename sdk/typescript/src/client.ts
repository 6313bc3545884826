// The client: sessions, threads, approvals, artifacts and events. Node.js and browsers share this module; `connect` is in
// node.ts and in web.ts.

import { clone, create, type MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";

import { readContent, textOf } from "./content.js";
import {
  AgentClosedError,
  AgentError,
  AgentFailedError,
  AgentInterruptedError,
  ResultMismatchError,
  TroupeError,
} from "./errors.js";
import { type SessionEvent, sessionEvent } from "./events.js";
import {
  type Group,
  GroupFailurePolicy,
  GroupItemState,
  type GroupItemStatus,
  GroupState,
} from "./gen/troupe/supervisor/v1/group_pb.js";
import { LimitsSchema, type Quota, type Session as SessionProto } from "./gen/troupe/supervisor/v1/session_pb.js";
import {
  type Approval as ApprovalProto,
  type Artifact as ArtifactProto,
  CreateGroupRequestSchema,
  CreateSessionRequestSchema,
  GroupItemSchema,
  SpawnAgentRequestSchema,
  type ThreadStatus,
  type WatchThreadsResponse,
} from "./gen/troupe/supervisor/v1/supervisor_pb.js";
import {
  type Budget as BudgetProto,
  BudgetSchema,
  OnLimit,
  type Status,
  StatusKind,
  type Thread as ThreadProto,
  type ThreadResult,
} from "./gen/troupe/supervisor/v1/thread_pb.js";
import { type TranscriptEntry } from "./gen/troupe/supervisor/v1/transcript_pb.js";
import { allPages, pagesOf } from "./pages.js";
import { ThreadNotFoundError } from "./reasons.js";
import { Backoff, type Caller, pause, type RetryPolicy, type Supervisor } from "./rpc.js";
import { type Schema, schemaText, type TypedSchema, validate } from "./schema.js";

/** The waiting time of one WaitAgents call, and the time by which the call's deadline exceeds the waiting time. */
const WAIT_MS = 300_000;
const WAIT_MARGIN_MS = 5_000;
/** The time before a stream that ended as planned is opened again. */
const REOPEN_DELAY_MS = 200;
const CONTENT_MS = 600_000;
/** The maximum number of threads that WaitAgents accepts. */
const MAX_WAITED = 1_000;

/** Limits on the usage of a thread and its descendants. 0 and absent mean unlimited. */
export interface Budget {
  readonly tokens?: bigint | number;
  readonly turns?: number;
  /** The time in running turns, in milliseconds. */
  readonly wallTimeMs?: number;
  /** The cost, in the currency of the supervisor's price list. */
  readonly cost?: number;
}

/** The status with which a thread settled, and its last message. */
export interface Result<T = unknown> {
  readonly threadId: string;
  readonly kind: "COMPLETED" | "ERRORED" | "INTERRUPTED" | "SHUTDOWN";
  /** The last message (COMPLETED) or the error (ERRORED), in full. */
  readonly text: string;
  /** The result that the thread reported last; undefined without a result. */
  readonly value: T;
  readonly status: Status;
}

/** An item of `Session.map`: the value of `{item}`, or the values of all placeholders. */
export type Item = string | Readonly<Record<string, string>>;

/** The properties of every row of `Session.map`. */
interface RowCommon {
  /** The item as it was given. */
  readonly item: Item;
  /** The last message of the thread, at most 4 KiB. */
  readonly text: string;
  /** Why the item failed. */
  readonly error: string;
  /** The id of the thread of the last attempt. Empty if there was no attempt. */
  readonly threadId: string;
  /** The whole item: attempts, usage and duration. */
  readonly proto: GroupItemStatus;
}

/** An item of `Session.map` that succeeded. */
export interface SucceededRow<T = unknown> extends RowCommon {
  readonly state: "SUCCEEDED";
  /** The result that the schema requires; undefined without a schema. */
  readonly value: T;
}

/** An item of `Session.map` without a valid result. */
export interface FailedRow extends RowCommon {
  readonly state: "FAILED" | "CANCELLED";
  readonly value: undefined;
}

/** An item of `Session.map` and its outcome. `state` selects the type. */
export type Row<T = unknown> = SucceededRow<T> | FailedRow;

/** The limit of a wait. */
export interface WaitOptions {
  /** Ends the wait, for example `AbortSignal.timeout(600_000)`. */
  readonly signal?: AbortSignal;
}

/** The settings of retries. */
export interface RetryOptions {
  readonly retry?: Partial<RetryPolicy>;
  /** The maximum time that `result` and `events` wait for an unreachable supervisor. Default 300,000 ms. */
  readonly reconnectTimeoutMs?: number;
}

/** The settings of a new session. `request` sets the fields that have no option. */
export interface SessionOptions {
  /** The project. In Node.js, a relative path is relative to the working directory; in a browser the path is absolute. */
  readonly cwd?: string;
  readonly budget?: Budget;
  readonly labels?: Readonly<Record<string, string>>;
  readonly runnerLabels?: Readonly<Record<string, string>>;
  /** Tools whose every call needs the approval of an operator. */
  readonly approveTools?: readonly string[];
  readonly maxThreads?: number;
  readonly maxDepth?: number;
  readonly request?: MessageInitShape<typeof CreateSessionRequestSchema>;
}

/** The settings of a new thread. `request` sets the fields that have no option. */
export interface SpawnOptions<T = unknown> {
  /** Default: the root. */
  readonly parent?: Thread | string;
  readonly agentName?: string;
  readonly alias?: string;
  readonly label?: string;
  readonly model?: string;
  readonly reasoningEffort?: string;
  readonly workingDirectory?: string;
  readonly budget?: Budget;
  /** The result has a value that matches this schema. */
  readonly schema?: Schema<T>;
  /** Waits for a slot instead of failing with ThreadLimitError. */
  readonly queue?: boolean;
  readonly request?: MessageInitShape<typeof SpawnAgentRequestSchema>;
}

/** The settings of `Session.map`. `request` sets the fields that have no option, such as the template of the spawns. */
export interface MapOptions<T = unknown> extends WaitOptions {
  /** Maximum number of items that run at the same time. Default 8. */
  readonly limit?: number;
  /** The result of each item matches this schema. */
  readonly schema?: Schema<T>;
  /** Maximum number of retries of a failed item. */
  readonly retries?: number;
  /** Maximum number of failed items before `onFailure` applies. */
  readonly toleratedFailures?: number;
  /** The treatment of the other items after too many failures. Default `continue`. */
  readonly onFailure?: "continue" | "cancelRest";
  /** The budget of all items together. */
  readonly budget?: Budget;
  readonly request?: MessageInitShape<typeof CreateGroupRequestSchema>;
}

/** A connection to a supervisor. `connect` creates it. */
export class Client implements AsyncDisposable {
  constructor(
    /** @internal */
    readonly caller: Caller,
    /** @internal */
    readonly reconnectTimeoutMs = 300_000,
    private readonly absolutePath = (path: string): string => path,
  ) {}

  /** The methods of the API. Unary calls have a request id, a deadline and retries. */
  get stub(): Supervisor {
    return this.caller.stub;
  }

  /** Opens a session whose root thread is this program. `await using` closes the session at the end of the block. */
  async session(options: SessionOptions = {}): Promise<Session> {
    const { request, cwd, budget, labels, runnerLabels, approveTools, maxThreads, maxDepth } = options;
    const made = clone(CreateSessionRequestSchema, create(CreateSessionRequestSchema, request ?? {}));
    if (cwd !== undefined) made.cwd = this.absolutePath(cwd);
    if (budget) made.budget = budgetProto(budget);
    if (maxThreads !== undefined || maxDepth !== undefined) {
      made.limits = create(LimitsSchema, { ...made.limits, ...given({ maxThreads, maxDepth }) });
    }
    Object.assign(made.labels, labels);
    Object.assign(made.runnerLabels, runnerLabels);
    made.approveTools.push(...(approveTools ?? []));
    const { session, threadToken } = await this.stub.createSession(made);
    return new Session(this, required(session), threadToken);
  }

  /** Returns an existing session. */
  async getSession(sessionId: string): Promise<Session> {
    return new Session(this, required((await this.stub.getSession({ sessionId })).session));
  }

  /** Lists the sessions that have all of these labels, newest first. */
  async sessions(options: { labels?: Record<string, string>; includeClosed?: boolean } = {}): Promise<SessionProto[]> {
    return allPages((page) => this.stub.listSessions({ ...options, ...page }), ({ sessions }) => sessions);
  }

  /** Closes the connection. Sessions and threads stay open. */
  async close(): Promise<void> {
    this.caller.close();
  }

  /** Calls `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** A session: a tree of threads below a root thread. */
export class Session implements AsyncDisposable {
  readonly id: string;
  /** The thread at depth 0. */
  readonly rootId: string;
  /** @internal */
  readonly streams = new Set<EventStream>();

  constructor(
    /** @internal */
    readonly client: Client,
    proto: SessionProto,
    /** The token of the root thread; empty for a session that this client did not open. */
    readonly threadToken = "",
  ) {
    this.id = proto.sessionId;
    this.rootId = proto.rootThreadId;
  }

  /** Closes the streams of this object, the root thread and all its descendants. Waits until the threads are closed. */
  async close({ wait = true }: { wait?: boolean } = {}): Promise<void> {
    for (const stream of [...this.streams]) stream.close();
    await this.client.stub.closeSession({ sessionId: this.id, wait });
  }

  /** Calls `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Reads the session. */
  async info(): Promise<SessionProto> {
    return required((await this.client.stub.getSession({ sessionId: this.id })).session);
  }

  /** Reads limits and budgets with their current usage. */
  async quota(): Promise<Quota> {
    return required((await this.client.stub.getQuota({ sessionId: this.id })).quota);
  }

  /** Replaces the budget of the whole session. */
  async setBudget(budget: Budget): Promise<void> {
    await this.client.stub.updateSession({ sessionId: this.id, budget: budgetProto(budget) });
  }

  /** Stops new turns and spawns, or lets them start again. Running turns finish. */
  async pause(paused = true): Promise<void> {
    await this.client.stub.updateSession({ sessionId: this.id, paused });
  }

  /** Spawns a thread. Returns when the spawn is durable, not when the work is done. */
  async spawn<T = unknown>(agentType: string, message: string, options: SpawnOptions<T> = {}): Promise<Thread<T>> {
    const { request, parent, budget, schema, queue, ...fields } = options;
    const { thread } = await this.client.stub.spawnAgent({
      ...request,
      ...given({ ...fields, parentThreadId: parent && idOf(parent), budget: budget && budgetProto(budget) }),
      ...(schema ? { resultSchema: schemaText(schema) } : {}),
      ...(queue ? { onLimit: OnLimit.QUEUE } : {}),
      ...(agentType ? { agentType } : {}),
      sessionId: this.id,
      message,
    });
    return new Thread(this, required(thread).threadId, schema);
  }

  /**
   * Spawns a thread for each item, at most `limit` at a time. Returns the items with their results, in order.
   *
   * `{item}` in `message` stands for an item that is a string, and `{name}` for a value of an item that is an object.
   * The group is durable: it continues if the signal ends this call. If only this program's schema rejects a result,
   * the row is FAILED, although the group counts the item as succeeded.
   */
  async map<T = unknown>(
    agentType: string,
    items: Iterable<Item>,
    message: string,
    options: MapOptions<T> = {},
  ): Promise<Row<T>[]> {
    const { request, limit = 8, schema, budget, onFailure, retries, toleratedFailures, signal } = options;
    const all = [...items];
    const made = clone(CreateGroupRequestSchema, create(CreateGroupRequestSchema, request ?? {}));
    const template = (made.template ??= create(SpawnAgentRequestSchema));
    template.message = message;
    if (agentType) template.agentType = agentType;
    if (schema) template.resultSchema = schemaText(schema);
    for (const [index, item] of all.entries()) {
      const variables = typeof item === "string" ? { item } : { ...item };
      made.items.push(create(GroupItemSchema, { key: String(index), variables }));
    }
    if (budget) made.budget = budgetProto(budget);
    if (retries !== undefined) made.retries = retries;
    if (toleratedFailures !== undefined) made.toleratedFailures = toleratedFailures;
    if (onFailure === "cancelRest") made.onFailure = GroupFailurePolicy.CANCEL_REST;
    made.maxConcurrency = limit;
    made.sessionId = this.id;
    const { group } = await this.client.stub.createGroup(made);
    await this.#endOfGroup(required(group), signal);
    const asked = { sessionId: this.id, groupId: required(group?.spec).groupId };
    const found = await allPages((page) => this.client.stub.listGroupItems({ ...asked, ...page }), (answer) => answer.items);
    const rows: Row<T>[] = [];
    for (const proto of found) rows.push(await this.#row(required(all[proto.index]), proto, schema));
    return rows;
  }

  /** Returns the thread with this id, without a call. */
  thread(threadId: string): Thread {
    return new Thread(this, threadId);
  }

  /** Lists the threads below the root in spawn order. */
  async threads({ includeClosed = false }: { includeClosed?: boolean } = {}): Promise<ThreadProto[]> {
    const request = { sessionId: this.id, includeClosed };
    return allPages((page) => this.client.stub.listActiveAgents({ ...request, ...page }), ({ threads }) => threads);
  }

  /** Waits until every thread is settled. Returns the results in the order of the threads, failed ones included. */
  async waitAll(threads: Iterable<Thread | string>, options: WaitOptions = {}): Promise<Result[]> {
    const ids = [...threads].map(idOf);
    const results = new Map<string, Result>();
    for await (const result of this.asCompleted(ids, options)) results.set(result.threadId, result);
    return ids.map((id) => required(results.get(id)));
  }

  /** Yields the result of each thread when it settles, failed ones included. */
  async *asCompleted(threads: Iterable<Thread | string>, { signal }: WaitOptions = {}): AsyncGenerator<Result, void> {
    const { caller, reconnectTimeoutMs } = this.client;
    const waiting = new Set([...threads].map(idOf));
    const backoff = new Backoff(caller.policy, reconnectTimeoutMs);
    while (waiting.size > 0) {
      const threadIds = [...waiting].slice(0, MAX_WAITED);
      for (const entry of await caller.wait(() => this.#wait(threadIds, signal), backoff, signal)) {
        waiting.delete(entry.threadId);
        yield await this.#result(entry);
      }
    }
  }

  /**
   * Follows the events of the session after the sequence number `after`; 0: from the beginning.
   *
   * The iterator resumes after a lost connection and after a restart of the supervisor. It ends with the event
   * `sessionClosed`. It throws HistoryCompactedError if the supervisor no longer has the events after `after`.
   */
  events({ after = 0n }: { after?: bigint } = {}): EventStream {
    return new EventStream(this, after);
  }

  /** Lists the approvals that wait for a decision, oldest first. */
  async approvals({ includeResolved = false }: { includeResolved?: boolean } = {}): Promise<Approval[]> {
    const request = { sessionId: this.id, includeResolved };
    const found = await allPages((page) => this.client.stub.listApprovals({ ...request, ...page }), (answer) => answer.approvals);
    return found.map((proto) => new Approval(this, proto));
  }

  /** Grants a request. A decision is final. */
  async grant(approvalId: string, reason = ""): Promise<Approval> {
    return this.#resolve(approvalId, true, reason);
  }

  /** Denies a request. A denial affects this request only. */
  async deny(approvalId: string, reason = ""): Promise<Approval> {
    return this.#resolve(approvalId, false, reason);
  }

  /** Lists the artifacts of the session or of one thread, oldest first. */
  async artifacts({ thread }: { thread?: Thread | string } = {}): Promise<Artifact[]> {
    const request = { sessionId: this.id, threadId: thread ? idOf(thread) : "" };
    const found = await allPages((page) => this.client.stub.listArtifacts({ ...request, ...page }), (answer) => answer.artifacts);
    return found.map((proto) => new Artifact(this, proto));
  }

  /** Reads stored content by its SHA-256 digest: an artifact, a long message or an approval's tool call. */
  async content(digest: string): Promise<Uint8Array> {
    const { caller } = this.client;
    return caller.repeat(() => readContent(caller.raw, this.id, digest, { timeoutMs: CONTENT_MS }));
  }

  async #resolve(approvalId: string, grant: boolean, reason: string): Promise<Approval> {
    const { approval } = await this.client.stub.resolveApproval({ sessionId: this.id, approvalId, grant, reason });
    return new Approval(this, required(approval));
  }

  /** Waits for the first of the threads to settle. */
  async #wait(threadIds: string[], signal: AbortSignal | undefined): Promise<ThreadStatus[]> {
    const { statuses, notFoundIds } = await this.client.caller.raw.waitAgents(
      { sessionId: this.id, threadIds, timeout: durationFromMs(WAIT_MS) },
      { timeoutMs: WAIT_MS + WAIT_MARGIN_MS, ...given({ signal }) },
    );
    const [missing] = notFoundIds;
    if (missing !== undefined) {
      throw new ThreadNotFoundError(`agent with id ${missing} not found`, {
        code: Code.NotFound,
        reason: "THREAD_NOT_FOUND",
        metadata: { thread_id: missing },
      });
    }
    return statuses;
  }

  async #result({ threadId, ...entry }: ThreadStatus): Promise<Result> {
    const status = required(entry.status);
    const text = status.content ? textOf(await this.content(status.content.digest)) : status.message;
    const value = await this.#value(entry.result);
    return { threadId, text, value, status, kind: StatusKind[status.kind] as Result["kind"] };
  }

  /** Returns the row of an item of a group that has ended. */
  async #row<T>(item: Item, proto: GroupItemStatus, schema: Schema<T> | undefined): Promise<Row<T>> {
    const { message: text, error, threadId } = proto;
    const common = { item, text, error, threadId, proto };
    if (proto.state !== GroupItemState.SUCCEEDED) {
      return { ...common, state: GroupItemState[proto.state] as FailedRow["state"], value: undefined };
    }
    try {
      const value = await validate(schema, await this.#value(proto.result), threadId);
      return { ...common, state: "SUCCEEDED", value };
    } catch (mismatch) {
      if (!(mismatch instanceof ResultMismatchError)) throw mismatch;
      return { ...common, state: "FAILED", value: undefined, error: mismatch.message };
    }
  }

  /** Returns the value of a result. A long document is read as content. */
  async #value(result: ThreadResult | undefined): Promise<unknown> {
    if (!result) return undefined;
    const json = result.documentJson || textOf(await this.content(required(result.content).digest));
    return JSON.parse(json);
  }

  /** Waits for the end of a group. */
  async #endOfGroup(group: Group, signal: AbortSignal | undefined): Promise<void> {
    const { caller, reconnectTimeoutMs } = this.client;
    const backoff = new Backoff(caller.policy, reconnectTimeoutMs);
    const ended = [GroupState.SUCCEEDED, GroupState.FAILED, GroupState.CANCELLED];
    const request = { sessionId: this.id, groupId: required(group.spec).groupId, wait: durationFromMs(WAIT_MS) };
    const options = { timeoutMs: WAIT_MS + WAIT_MARGIN_MS, ...given({ signal }) };
    while (!ended.includes(group.state)) {
      group = required((await caller.wait(() => caller.raw.getGroup(request, options), backoff, signal)).group);
    }
  }
}

const AGENT_ERRORS: Readonly<Record<string, typeof AgentError>> = {
  ERRORED: AgentFailedError,
  INTERRUPTED: AgentInterruptedError,
  SHUTDOWN: AgentClosedError,
};

/** A thread of a session. `T` is the type of its result. */
export class Thread<T = unknown> {
  constructor(
    private readonly session: Session,
    readonly id: string,
    private readonly schema?: Schema<T>,
  ) {}

  /** Reads the thread. */
  async info(): Promise<ThreadProto> {
    return required((await this.#stub.getThread(this.#ids)).thread);
  }

  /** Spawns a child of this thread. */
  async spawn<C = unknown>(
    agentType: string,
    message: string,
    options: Omit<SpawnOptions<C>, "parent"> = {},
  ): Promise<Thread<C>> {
    return this.session.spawn(agentType, message, { ...options, parent: this });
  }

  /**
   * Sends input. A settled thread starts a new turn. Returns the number of the input in the thread.
   *
   * A running thread receives the input with its next turn. With `interrupt`, the running turn stops first. With
   * `steer`, the input is delivered within the running turn if the program accepts that.
   */
  async send(
    message: string,
    options: { schema?: Schema; interrupt?: boolean; steer?: boolean; queue?: boolean } = {},
  ): Promise<number> {
    const { schema, queue, ...fields } = options;
    const resultSchema = schema ? schemaText(schema) : "";
    const onLimit = queue ? OnLimit.QUEUE : OnLimit.UNSPECIFIED;
    return (await this.#stub.sendInput({ ...this.#ids, ...fields, message, resultSchema, onLimit })).inputNumber;
  }

  /** Stops the running turns of the thread and its descendants. Returns the ids of the interrupted threads. */
  async interrupt(reason = "", { onlyThis = false }: { onlyThis?: boolean } = {}): Promise<string[]> {
    return (await this.#stub.interruptAgent({ ...this.#ids, reason, onlyThis })).interruptedThreadIds;
  }

  /** Closes the thread and its descendants, leaf first. */
  async close({ wait = true, reason = "" }: { wait?: boolean; reason?: string } = {}): Promise<void> {
    await this.#stub.closeAgent({ ...this.#ids, wait, reason });
  }

  /** Opens the closed thread again. */
  async resume(): Promise<void> {
    await this.#stub.resumeAgent(this.#ids);
  }

  /** Replaces the budget of the thread and its descendants. */
  async setBudget(budget: Budget): Promise<void> {
    await this.#stub.updateThreadBudget({ ...this.#ids, budget: budgetProto(budget) });
  }

  /**
   * Waits until the thread is settled. Throws an AgentError unless it is COMPLETED.
   *
   * The value is validated with `schema`, by default with the schema of the spawn. If `send` had a different schema, pass that
   * schema. Throws a ResultMismatchError if the value does not match.
   */
  async result(options?: WaitOptions): Promise<Result<T>>;
  async result<U>(options: WaitOptions & { readonly schema: TypedSchema<U> }): Promise<Result<U>>;
  async result(options: WaitOptions & { readonly schema?: Schema } = {}): Promise<Result> {
    const { schema = this.schema, ...wait } = options;
    const result = required((await this.session.waitAll([this], wait))[0]);
    if (result.kind !== "COMPLETED") throw new (AGENT_ERRORS[result.kind] ?? AgentError)(result);
    return { ...result, value: await validate(schema, result.value, this.id) };
  }

  /** Lists the artifacts of the thread, oldest first. */
  async artifacts(): Promise<Artifact[]> {
    return this.session.artifacts({ thread: this });
  }

  /**
   * Yields the entries of the thread's transcript after the number `after`, oldest first.
   *
   * With `follow`, the iteration continues with new entries until the thread is closed. It resumes after a lost
   * connection and after a restart of the supervisor. A text of more than 16 KiB is stored as content: read it with
   * `Session.content`.
   */
  async *transcript(
    options: { after?: bigint; follow?: boolean } & WaitOptions = {},
  ): AsyncGenerator<TranscriptEntry, void> {
    const { follow = false, signal } = options;
    let afterNumber = options.after ?? 0n;
    if (!follow) {
      const request = { ...this.#ids, afterNumber };
      for await (const { entries } of pagesOf((page) => this.#stub.listTranscript({ ...request, ...page }))) yield* entries;
      return;
    }
    const { caller, reconnectTimeoutMs } = this.session.client;
    const backoff = new Backoff(caller.policy, reconnectTimeoutMs);
    for (;;) {
      signal?.throwIfAborted();
      try {
        const request = { ...this.#ids, afterNumber };
        for await (const message of caller.raw.watchTranscript(request, given({ signal }))) {
          backoff.reset();
          for (const entry of message.entries) {
            afterNumber = entry.number;
            yield entry;
          }
          if (message.number > afterNumber) afterNumber = message.number;
          if (message.closed) return;
        }
      } catch (failure) {
        if (failure instanceof TroupeError) throw failure;
        signal?.throwIfAborted();
        await caller.recover(failure, backoff, signal);
        continue;
      }
      // The supervisor ends each stream after a while.
      await pause(REOPEN_DELAY_MS, signal);
    }
  }

  get #stub(): Supervisor {
    return this.session.client.stub;
  }

  get #ids(): { sessionId: string; threadId: string } {
    return { sessionId: this.session.id, threadId: this.id };
  }
}

/** A request for an operator's decision, which is pending or decided. */
export class Approval {
  constructor(
    private readonly session: Session,
    /** The whole approval: its subject, its deadline, its decision. */
    readonly proto: ApprovalProto,
  ) {}

  get id(): string {
    return this.proto.approvalId;
  }

  /** Grants the request. */
  async grant(reason = ""): Promise<Approval> {
    return this.session.grant(this.id, reason);
  }

  /** Denies the request. A denial affects this request only. */
  async deny(reason = ""): Promise<Approval> {
    return this.session.deny(this.id, reason);
  }
}

/** A file or text that a thread produced, such as a diff or a report. */
export class Artifact {
  constructor(
    private readonly session: Session,
    /** The whole artifact: its media type, size and digest, its thread and turn. */
    readonly proto: ArtifactProto,
  ) {}

  get name(): string {
    return this.proto.name;
  }

  get kind(): string {
    return this.proto.kind;
  }

  /** Reads the bytes of the artifact. */
  async read(): Promise<Uint8Array> {
    return this.session.content(this.proto.content?.digest ?? "");
  }
}

/** The events of a session in order, each exactly once. `Session.events` creates it; `break` closes it. */
export class EventStream implements AsyncIterableIterator<SessionEvent, undefined>, AsyncDisposable {
  /** The sequence number of the last event. A program that outlives its process stores it and passes it as `after`. */
  position: bigint;
  readonly #session: Session;
  readonly #over = new AbortController();
  readonly #events: AsyncGenerator<SessionEvent, undefined>;

  constructor(session: Session, after: bigint) {
    this.#session = session;
    this.position = after;
    this.#events = this.#follow();
    session.streams.add(this);
  }

  /** Returns this stream, which can be iterated once. */
  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Returns the next event when there is one. */
  async next(): Promise<IteratorResult<SessionEvent, undefined>> {
    return this.#events.next();
  }

  /** Ends the stream, as `break` in a loop does. */
  async return(): Promise<IteratorResult<SessionEvent, undefined>> {
    this.close();
    return { done: true, value: undefined };
  }

  /** Ends the stream. A pending `next` returns `done`. */
  close(): void {
    this.#over.abort();
    this.#session.streams.delete(this);
  }

  /** Calls `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async *#follow(): AsyncGenerator<SessionEvent, undefined> {
    const { caller, reconnectTimeoutMs } = this.#session.client;
    const backoff = new Backoff(caller.policy, reconnectTimeoutMs);
    const { signal } = this.#over;
    try {
      if (this.position > 0n && (await this.#hasEnded())) return;
      while (!signal.aborted) {
        // Without a deadline: an idle session has no events.
        const request = { sessionId: this.#session.id, afterSequence: this.position };
        try {
          for await (const message of caller.raw.watchThreads(request, { signal })) {
            backoff.reset();
            const event = this.#take(message);
            if (event) yield event;
            if (event?.kind === "sessionClosed") return;
          }
        } catch (failure) {
          if (failure instanceof TroupeError) throw failure;
          await caller.recover(failure, backoff, signal);
          continue;
        }
        // The supervisor ends each stream after a while.
        await pause(REOPEN_DELAY_MS, signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      this.close();
    }
    return;
  }

  /** Advances the position. Returns the message's event, or undefined for no event or one that was returned before. */
  #take({ sequence, message }: WatchThreadsResponse): SessionEvent | undefined {
    if (message.case === "reset") {
      throw new TroupeError(`the events of session ${this.#session.id} do not continue: ${message.value.reason}`);
    }
    const isNew = sequence > this.position;
    if (isNew) this.position = sequence;
    return isNew && message.case === "event" ? sessionEvent(message.value, this.#session) : undefined;
  }

  /** Returns whether the session is closed and its last event is not after the position. */
  async #hasEnded(): Promise<boolean> {
    const session = await this.#session.info();
    return session.closed && session.sequence <= this.position;
  }
}

function idOf(thread: Thread | string): string {
  return typeof thread === "string" ? thread : thread.id;
}

function budgetProto({ tokens = 0n, turns = 0, wallTimeMs = 0, cost = 0 }: Budget): BudgetProto {
  return create(BudgetSchema, {
    tokens: BigInt(tokens),
    turns,
    costMicros: BigInt(Math.round(cost * 1_000_000)),
    ...(wallTimeMs > 0 ? { wallTime: durationFromMs(wallTimeMs) } : {}),
  });
}

/** Returns the fields that are not undefined. */
function given<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}

function required<T>(value: T | undefined): T {
  if (value === undefined) throw new TroupeError("the response of the supervisor lacks a required field");
  return value;
}
