// Executes threads with functions.
//
//     const review = agent(["reviewer"], async (task) => `I have read: ${task.message}`);
//     await serve([review], { labels: { language: "typescript" } });
//
// A session with `runnerLabels: { language: "typescript" }` gives its threads to this runner. The function is called
// for each turn, and its result is the last message of the turn. An exception ends the turn as ERRORED. An interrupt
// aborts `task.signal` and ends the turn at once. A later result or exception of the function is ignored. The
// transcript has the inputs, the authorized calls and the result of each turn; `Task.record` adds other entries.

import { createHash, randomUUID } from "node:crypto";
import { pid } from "node:process";
import { setTimeout as sleep } from "node:timers/promises";

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { durationMs, timestampNow } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";

import type { Client } from "./client.js";
import { TurnOutcome } from "./gen/troupe/supervisor/v1/event_pb.js";
import {
  type AttachRequest,
  AttachRequestSchema,
  type AttachResponse,
  type HeldThread,
  HeldThreadSchema,
  type RunnerHello,
  RunnerHelloSchema,
  type RunnerReport,
  RunnerReportSchema,
  type RunnerWelcome,
  type ShutdownThread,
  StartRefusal,
  type StartThread,
  ThreadRunnerService,
  type TranscriptBatch,
  TranscriptBatchSchema,
  type Turn,
} from "./gen/troupe/supervisor/v1/runner_pb.js";
import { ClosePolicy, UsageSchema } from "./gen/troupe/supervisor/v1/thread_pb.js";
import { ToolVerdict, type TranscriptEntrySchema, TranscriptKind } from "./gen/troupe/supervisor/v1/transcript_pb.js";
import { connect } from "./node.js";
import { Backoff, pause } from "./rpc.js";

/** The maximum size of an artifact. */
const MAX_ARTIFACT = 16 * 1024 * 1024;
/** The maximum size of the data in one report. */
const MAX_PIECE = 3 * 1024 * 1024;
/** The maximum length of an entry's text. */
const MAX_TEXT = 512 * 1024;
/** The maximum number of entries of an attempt that wait for their acknowledgement. */
const MAX_ENTRIES = 1_000;
/** The time before the runner attaches again. */
const ATTACH_DELAY_MS = 200;

/** A function that executes the turns of a thread. */
export type AgentFunction = (task: Task) => Promise<string>;

/** A function and the roles whose threads it executes. No roles: all roles. */
export interface Agent {
  readonly roles: ReadonlySet<string>;
  readonly run: AgentFunction;
}

/** Makes a function execute the threads of these roles. Without a role, it executes the threads of all roles. */
export function agent(roles: readonly string[], run: AgentFunction): Agent {
  return { roles: new Set(roles), run };
}

/** The decision on a tool call. */
export interface Decision {
  readonly allowed: boolean;
  /** Why the call is denied, for the agent. */
  readonly reason: string;
}

/** The settings of a runner. */
export interface RunnerOptions {
  /** The runner's id, stable across restarts. Default: the kind and the process id. */
  readonly runnerId?: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** The only session whose threads the runner takes. */
  readonly sessionId?: string;
  /** Maximum number of threads that the runner keeps at the same time. Default 8. */
  readonly capacity?: number;
  /** The kind of runner. Default `typescript`. */
  readonly kind?: string;
  /**
   * Declares that every agent calls `Task.authorize` before each tool, or has no tools. Otherwise the runner receives only
   * threads without restrictions.
   */
  readonly enforcesTools?: boolean;
  /** Declares that agents of READ_ONLY threads cannot write. */
  readonly enforcesReadOnly?: boolean;
}

/** The kinds of entries that a function can add to the transcript of its thread. */
export type EntryKind = "message" | "reasoning" | "toolResult" | "error" | "notice";

const KINDS: Readonly<Record<EntryKind, TranscriptKind>> = {
  message: TranscriptKind.MESSAGE,
  reasoning: TranscriptKind.REASONING,
  toolResult: TranscriptKind.TOOL_RESULT,
  error: TranscriptKind.ERROR,
  notice: TranscriptKind.NOTICE,
};

type ReportKind = NonNullable<MessageInitShape<typeof RunnerReportSchema>["kind"]>;
type Entry = MessageInitShape<typeof TranscriptEntrySchema>;

/** One turn of a thread. */
export class Task {
  readonly threadId: string;
  readonly sessionId: string;
  readonly agentType: string;
  readonly workingDirectory: string;
  /** The number of the turn in the thread, from 1. */
  readonly turn: number;
  /** The text of the inputs. It is empty if mail started the turn; the prompt then has the mail. */
  readonly message: string;
  /** The blocks of the prompt that are not blank. Later turns have only the blocks that changed. */
  readonly prompt: string;

  constructor(
    private readonly program: Program,
    /** The whole turn. */
    readonly proto: Turn,
    /** Aborted when the turn has to stop. */
    readonly signal: AbortSignal,
  ) {
    const { start } = program;
    this.threadId = start.threadId;
    this.sessionId = start.sessionId;
    this.agentType = start.resolved?.agentType ?? "";
    this.workingDirectory = start.workingDirectory;
    this.turn = proto.turn;
    const items = proto.inputs.flatMap((input) => input.items);
    this.message = items.flatMap(({ item }) => (item.case === "text" ? [item.value] : [])).join("\n");
    this.prompt = proto.blocks.map(({ text }) => text).filter((text) => text.trim()).join("\n\n");
  }

  /** Values that the function keeps for later turns. A new attempt at the thread starts without them. */
  get state(): Record<string, unknown> {
    return this.program.state;
  }

  /** The whole command that started the thread. */
  get start(): StartThread {
    return this.program.start;
  }

  /** Returns a client that acts as this thread. The client can see and spawn threads below this thread only. */
  async connect(): Promise<Client> {
    return connect({ address: this.start.supervisorUrl, token: this.start.threadToken });
  }

  /** Shows what the agent does now, in one line. The line is lost if the supervisor is unreachable. */
  activity(text: string): void {
    this.program.runner.sendActivity(this.start, text);
  }

  /** Adds to the usage of the thread. The usage is reported at the end of the turn. */
  usage(tokens: { inputTokens?: number; outputTokens?: number; cachedInputTokens?: number }): void {
    const { usage } = this.program;
    usage.inputTokens += BigInt(tokens.inputTokens ?? 0);
    usage.outputTokens += BigInt(tokens.outputTokens ?? 0);
    usage.cachedInputTokens += BigInt(tokens.cachedInputTokens ?? 0);
  }

  /** Stores an artifact of at most 16 MiB. The artifact is durable at the latest when the turn has ended. */
  artifact(name: string, data: Uint8Array, { kind = "report", mediaType = "text/plain" } = {}): void {
    if (data.length > MAX_ARTIFACT) {
      throw new RangeError(`the artifact ${name} has ${data.length} bytes, more than ${MAX_ARTIFACT}`);
    }
    // The pieces are consecutive reports: no other report may come between them.
    for (let offset = 0; offset < Math.max(data.length, 1); offset += MAX_PIECE) {
      const end = offset + MAX_PIECE;
      const piece = { data: data.subarray(offset, end), append: offset > 0, more: end < data.length };
      this.program.report({ case: "artifact", value: { turn: this.turn, name, kind, mediaType, ...piece } });
    }
  }

  /** Adds an entry to the transcript of the thread. The entry is durable at the latest when the turn has ended. */
  record(kind: EntryKind, text: string): void {
    this.program.record({ turn: this.turn, kind: KINDS[kind], text });
  }

  /**
   * Asks whether the thread may use a tool. Waits for an operator if the call needs an approval.
   *
   * `paths` are the absolute paths that the call would write. If the runner declares `enforcesTools`, call this method
   * before every tool.
   */
  async authorize(tool: string, args: object = {}, { paths = [] }: { paths?: string[] } = {}): Promise<Decision> {
    const argumentsJson = JSON.stringify(args);
    const decision = await this.program.runner.ask(this.start, tool, argumentsJson, paths);
    const { allowed, reason } = decision;
    const verdict = allowed ? ToolVerdict.ALLOWED : ToolVerdict.DENIED;
    const toolCall = { tool, nativeTool: tool, verdict, reason: allowed ? "" : reason };
    this.program.record({ turn: this.turn, kind: TranscriptKind.TOOL_CALL, text: argumentsJson, toolCall });
    return decision;
  }
}

/** Attaches to the supervisor and executes threads until it is drained. `serve` does this in one call. */
export class Runner {
  /** Settles when the runner is attached for the first time. */
  readonly attached: Promise<void>;
  readonly #client: Client;
  readonly #agents: readonly Agent[];
  readonly #hello: RunnerHello;
  readonly #programs = new Map<string, Program>();
  readonly #questions = new Map<string, { request: AttachRequest; answer: (decision: Decision) => void }>();
  #outbox = new Outbox();
  #stream: AbortController | undefined;
  #isAttached = false;
  #isDraining = false;
  #announce: () => void = () => undefined;

  constructor(client: Client, agents: readonly Agent[], options: RunnerOptions = {}) {
    const { kind = "typescript", enforcesTools = false, enforcesReadOnly = false } = options;
    this.#client = client;
    this.#agents = agents;
    this.#hello = create(RunnerHelloSchema, {
      runnerId: options.runnerId ?? `${kind}-${pid}`,
      kinds: [{ kind, enforcesTools, enforcesReadOnly }],
      labels: { ...options.labels },
      capacity: options.capacity ?? 8,
      sessionId: options.sessionId ?? "",
    });
    this.attached = new Promise((resolve) => {
      this.#announce = resolve;
    });
  }

  /** Attaches to the supervisor, and attaches again whenever the stream is lost. Returns when the runner is drained. */
  async run(): Promise<void> {
    const { caller } = this.#client;
    const backoff = new Backoff(caller.policy, Number.POSITIVE_INFINITY);
    try {
      while (!this.#isDrained()) {
        try {
          await this.#serve(backoff);
          // The supervisor is about to stop, or ended the stream.
          if (!this.#isDrained()) await pause(ATTACH_DELAY_MS);
        } catch (failure) {
          // `drain` aborts the stream.
          if (!this.#isDrained()) await caller.recover(failure, backoff);
        }
      }
    } finally {
      for (const program of this.#programs.values()) program.abandon();
    }
  }

  /** Accepts no more threads. `run` returns when the last thread has ended. */
  drain(): void {
    this.#isDraining = true;
    if (this.#isDrained()) this.#stream?.abort();
    else if (this.#isAttached) this.#send({ case: "draining", value: {} });
  }

  // ---- for the programs

  /** @internal Sends a report if the runner is attached. The report is resent until it is durable. */
  report(report: RunnerReport): void {
    if (this.#isAttached) this.#send({ case: "report", value: report });
  }

  /** @internal Sends an entry of a transcript if the runner is attached. The entry is resent until it is durable. */
  transcribe(batch: TranscriptBatch): void {
    if (this.#isAttached) this.#send({ case: "transcript", value: batch });
  }

  /** @internal Sends the current activity of a thread, if the runner is attached. */
  sendActivity({ threadId, generation }: StartThread, activity: string): void {
    if (this.#isAttached) this.#send({ case: "telemetry", value: { threadId, generation, activity } });
  }

  /** @internal Sends a tool request, and resends it on each new stream until it is answered. */
  async ask(start: StartThread, tool: string, argumentsJson: string, resolvedPaths: string[]): Promise<Decision> {
    const requestId = randomUUID();
    const { threadId, generation } = start;
    const value = { requestId, threadId, generation, tool, argumentsJson, resolvedPaths };
    const request = create(AttachRequestSchema, { message: { case: "toolRequest", value } });
    try {
      return await new Promise<Decision>((answer) => {
        this.#questions.set(requestId, { request, answer });
        if (this.#isAttached) this.#outbox.push(request);
      });
    } finally {
      this.#questions.delete(requestId);
    }
  }

  // ---- the stream

  async #serve(backoff: Backoff): Promise<void> {
    this.#outbox = new Outbox();
    const threads = [...this.#programs.values()].map((program) => program.held());
    this.#send({ case: "hello", value: { ...this.#hello, threads } });
    const stream = new AbortController();
    this.#stream = stream;
    const runners = createClient(ThreadRunnerService, this.#client.caller.transport);
    try {
      for await (const { message } of runners.attach(this.#outbox, { signal: stream.signal })) {
        backoff.reset();
        if (message.case === "welcome") {
          this.#welcome(message.value);
          void this.#beat(message.value, stream.signal);
        } else if (message.case === "goAway") {
          return;
        } else {
          this.#obey(message);
        }
        if (this.#isDrained()) return;
      }
    } finally {
      this.#isAttached = false;
      this.#outbox.close();
      stream.abort();
    }
  }

  #welcome(welcome: RunnerWelcome): void {
    for (const { threadId, goOn, appliedReportSequence } of welcome.threads) {
      const program = this.#programs.get(threadId);
      if (program && goOn) this.#acknowledge(program, appliedReportSequence);
      else if (program) this.#abandon(program);
    }
    this.#isAttached = true;
    this.#announce();
    if (this.#isDraining) this.#send({ case: "draining", value: {} });
    for (const program of this.#programs.values()) program.resend();
    for (const { request } of this.#questions.values()) this.#outbox.push(request);
  }

  async #beat({ lease }: RunnerWelcome, signal: AbortSignal): Promise<void> {
    const third = (lease ? durationMs(lease) : 30_000) / 3;
    while (!signal.aborted) {
      // The end of the stream ends the pause.
      await sleep(third, undefined, { signal }).catch(() => undefined);
      if (!signal.aborted) this.#send({ case: "heartbeat", value: {} });
    }
  }

  #send(message: NonNullable<MessageInitShape<typeof AttachRequestSchema>["message"]>): void {
    this.#outbox.push(create(AttachRequestSchema, { message }));
  }

  // ---- the commands of the supervisor

  #obey(message: AttachResponse["message"]): void {
    switch (message.case) {
      case "reportAck": {
        const program = this.#held(message.value);
        if (program) this.#acknowledge(program, message.value.reportSequence);
        break;
      }
      case "transcriptAck":
        this.#held(message.value)?.transcribed(message.value.batch);
        break;
      case "toolDecision":
        this.#questions.get(message.value.requestId)?.answer(message.value);
        break;
      case "startThread":
        this.#start(message.value);
        this.#acknowledgeCommand(message.value);
        break;
      case "deliverInput": {
        const { delivery } = message.value;
        // This runner does not report input for a running turn as delivered, so the next turn contains the input.
        if (delivery.case === "turn") this.#held(message.value)?.begin(delivery.value);
        this.#acknowledgeCommand(message.value);
        break;
      }
      case "interrupt":
        this.#held(message.value)?.interrupt(message.value.turn, message.value.reason);
        this.#acknowledgeCommand(message.value);
        break;
      case "shutdown":
        void this.#held(message.value)?.shutDown(message.value);
        this.#acknowledgeCommand(message.value);
        break;
      default:
        // A message of a kind that is newer than this release.
        break;
    }
  }

  #acknowledgeCommand({ commandId }: { commandId: string }): void {
    this.#send({ case: "commandAck", value: { commandId } });
  }

  #start(start: StartThread): void {
    const earlier = this.#programs.get(start.threadId);
    if (earlier && earlier.start.generation >= start.generation) return;
    if (earlier) this.#abandon(earlier);
    const role = start.resolved?.agentType ?? "";
    const found = this.#agents.find(({ roles }) => roles.size === 0 || roles.has(role));
    if (!found) {
      const { threadId, generation } = start;
      const message = `this runner has no agent for the role "${role}"`;
      this.#send({
        case: "startRefused",
        value: { threadId, generation, refusal: StartRefusal.NO_PROGRAM, message },
      });
      return;
    }
    const program = new Program(this, found, start);
    this.#programs.set(start.threadId, program);
    if (start.turn) program.begin(start.turn);
  }

  #acknowledge(program: Program, upTo: bigint): void {
    if (program.acknowledged(upTo)) this.#programs.delete(program.start.threadId);
  }

  #abandon(program: Program): void {
    program.abandon();
    this.#programs.delete(program.start.threadId);
  }

  #held({ threadId, generation }: { threadId: string; generation: number }): Program | undefined {
    const program = this.#programs.get(threadId);
    return program?.start.generation === generation ? program : undefined;
  }

  #isDrained(): boolean {
    return this.#isDraining && this.#programs.size === 0;
  }
}

/**
 * Executes threads until SIGINT or SIGTERM. Then waits until the running turns have ended, and returns.
 *
 * Without `client`, the supervisor is found as `connect` finds it.
 */
export async function serve(
  agents: readonly Agent[],
  { client, ...options }: RunnerOptions & { client?: Client } = {},
): Promise<void> {
  const opened = client ?? (await connect());
  const runner = new Runner(opened, agents, options);
  const drain = (): void => runner.drain();
  process.on("SIGINT", drain).on("SIGTERM", drain);
  try {
    await runner.run();
  } finally {
    process.off("SIGINT", drain).off("SIGTERM", drain);
    if (!client) await opened.close();
  }
}

/** One attempt at a thread. It continues while the runner is disconnected. */
class Program {
  readonly state: Record<string, unknown> = {};
  readonly usage = create(UsageSchema);
  /** The number of the last turn that was dispatched. */
  #turn = 0;
  #work: Promise<void> = Promise.resolve();
  #stop = new AbortController();
  #isStopping = false;
  /** Whether the last report of the attempt was created. */
  #isOver = false;
  #isAbandoned = false;
  /** The reports and entries that are not known to be durable. */
  #reports: RunnerReport[] = [];
  #lastReport = 0n;
  #batches: TranscriptBatch[] = [];
  #lastBatch = 0n;
  /** The number of entries that were dropped since the last one that was kept. */
  #dropped = 0;

  constructor(
    readonly runner: Runner,
    private readonly executedBy: Agent,
    readonly start: StartThread,
  ) {}

  /** The description of the attempt in `hello`, for a runner that attaches again. */
  held(): HeldThread {
    const { threadId, generation } = this.start;
    return create(HeldThreadSchema, { threadId, generation, turn: this.#turn, reportSequence: this.#lastReport });
  }

  /** Sends a report of this attempt. */
  report(kind: ReportKind): void {
    if (this.#isAbandoned) return;
    this.#lastReport += 1n;
    const { threadId, generation } = this.start;
    const report = create(RunnerReportSchema, { threadId, generation, reportSequence: this.#lastReport, kind });
    this.#reports.push(report);
    this.runner.report(report);
  }

  /** Adds an entry to the transcript, or drops it if too many entries wait. The next entry reports dropped entries. */
  record(entry: Entry): void {
    if (this.#isAbandoned || !entry.text) return;
    if (this.#batches.length >= MAX_ENTRIES) {
      this.#dropped += 1;
      return;
    }
    const time = timestampNow();
    const entries: Entry[] = [{ ...entry, text: entry.text.slice(0, MAX_TEXT), time }];
    if (this.#dropped > 0) {
      const text = `${this.#dropped} entries are missing: the supervisor was not reachable`;
      entries.unshift({ turn: this.#turn, kind: TranscriptKind.NOTICE, text, time });
      this.#dropped = 0;
    }
    this.#lastBatch += 1n;
    const { threadId, generation } = this.start;
    const batch = create(TranscriptBatchSchema, { threadId, generation, batch: this.#lastBatch, entries });
    this.#batches.push(batch);
    this.runner.transcribe(batch);
  }

  /** Resends the entries and reports that are not known to be durable. Entries precede the reports of their thread. */
  resend(): void {
    for (const batch of this.#batches) this.runner.transcribe(batch);
    for (const report of this.#reports) this.runner.report(report);
  }

  /** Forgets the reports up to this number. Returns whether the attempt has ended and all its reports are durable. */
  acknowledged(upTo: bigint): boolean {
    this.#reports = this.#reports.filter(({ reportSequence }) => reportSequence > upTo);
    return this.#isOver && this.#reports.length === 0;
  }

  /** Forgets the entries up to this batch. */
  transcribed(upTo: bigint): void {
    this.#batches = this.#batches.filter(({ batch }) => batch > upTo);
  }

  /** Starts a turn. A repeated command is ignored, because commands are resent on a new stream. */
  begin(turn: Turn): void {
    if (turn.turn <= this.#turn) return;
    if (this.#turn === 0 && turn.turn > 1) {
      const reason = "the function has no state of earlier attempts";
      this.report({ case: "contextLost", value: { reason } });
    }
    this.#turn = turn.turn;
    this.#stop = new AbortController();
    this.report({ case: "turnStarted", value: { turn: turn.turn } });
    const task = new Task(this, turn, this.#stop.signal);
    this.record({ turn: turn.turn, kind: TranscriptKind.INPUT, text: task.message });
    this.#work = this.#execute(task);
  }

  async #execute(task: Task): Promise<void> {
    const stopped = new Promise<never>((_, reject) => {
      task.signal.addEventListener("abort", () => reject(task.signal.reason), { once: true });
    });
    stopped.catch(() => undefined);
    let outcome = TurnOutcome.COMPLETED;
    let kind: EntryKind = "message";
    let message: string;
    try {
      // A function that is not async throws here; the exception also ends the turn.
      message = await Promise.race([(async () => this.executedBy.run(task))(), stopped]);
    } catch (error) {
      if (task.signal.aborted) {
        [outcome, kind, message] = [TurnOutcome.INTERRUPTED, "notice", String(task.signal.reason)];
      } else {
        [outcome, kind, message] = [TurnOutcome.ERRORED, "error", String(error)];
      }
    }
    this.record({ turn: task.turn, kind: KINDS[kind], text: message });
    const outputSha256 = outcome === TurnOutcome.COMPLETED ? createHash("sha256").update(message).digest("hex") : "";
    const ended = { turn: task.turn, usage: this.usage, outcome, message, outputSha256 };
    this.report({ case: "turnEnded", value: ended });
  }

  /** Stops a turn. A late interrupt must not stop the next turn. */
  interrupt(turn: number, reason: string): void {
    if (turn === this.#turn) this.#stop.abort(reason);
  }

  /** Ends the attempt. A repeated command can have a stricter close policy than the first one. */
  async shutDown({ closePolicy, grace, reason }: ShutdownThread): Promise<void> {
    const waits = closePolicy === ClosePolicy.FINISH_TURN;
    if (this.#isStopping) {
      if (!waits) this.#stop.abort(reason);
      return;
    }
    this.#isStopping = true;
    if (waits) await Promise.race([this.#work, sleep(grace ? durationMs(grace) : 0, undefined, { ref: false })]);
    this.#stop.abort(reason);
    await this.#work;
    this.#isOver = true;
    this.report({ case: "stopped", value: { detail: "the function has ended" } });
  }

  /** Stops the work without a report: the supervisor has given the thread to another attempt. */
  abandon(): void {
    this.#isAbandoned = true;
    this.#stop.abort("abandoned");
  }
}

/** The messages of one stream. */
class Outbox implements AsyncIterable<AttachRequest> {
  readonly #waiting: AttachRequest[] = [];
  #isClosed = false;
  #wake: () => void = () => undefined;

  push(message: AttachRequest): void {
    this.#waiting.push(message);
    this.#wake();
  }

  close(): void {
    this.#isClosed = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<AttachRequest, void> {
    for (;;) {
      const message = this.#waiting.shift();
      if (message) {
        yield message;
      } else if (this.#isClosed) {
        return;
      } else {
        await new Promise<void>((wake) => {
          this.#wake = wake;
        });
      }
    }
  }
}
