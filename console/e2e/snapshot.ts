// Responses about a session with many threads and events. Each response is built on request. The module is bundled
// before it is loaded, because it imports the generated messages.

import { create, fromBinary, toBinary, type DescMessage, type MessageInitShape, type MessageShape } from "@bufbuild/protobuf";

import { WatchResponseSchema, type WatchResponse } from "../src/gen/troupe/console/v1/console_pb";
import {
  EventSchema,
  GetSessionResponseSchema,
  ListActiveAgentsRequestSchema,
  ListActiveAgentsResponseSchema,
  ListTranscriptResponseSchema,
  StatusKind,
  ThreadSchema,
  TranscriptKind,
  TurnOutcome,
  WatchThreadsRequestSchema,
  WatchThreadsResponseSchema,
  type Event,
  type Thread,
} from "../src/model/messages";

export const THREADS = 10_000;
export const EVENTS = 1_000_000;
export const SESSION = "01a21ced-b5cd-7029-99b2-beb5a79f2e78";
const PART = 256;
const CHANGES = 10;
const START = 1_700_000_000;

type EventKind = NonNullable<MessageInitShape<typeof EventSchema>["kind"]>;

/** Returns a frame of gRPC-web: a message, or trailers, with its prefix. */
function frame(flag: number, data: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head[0] = flag;
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
}

/** Returns the body of a response: each message, then the trailers. */
function body<T extends DescMessage>(schema: T, messages: Iterable<MessageShape<T>>): Buffer {
  const frames = Array.from(messages, (message) => frame(0, toBinary(schema, message)));
  return Buffer.concat([...frames, frame(0x80, Buffer.from("grpc-status: 0\r\n"))]);
}

/** Returns the start of the stream that the page follows. */
export function watched(): Buffer {
  return Buffer.concat(Array.from(snapshot(), (message) => frame(0, toBinary(WatchResponseSchema, message))));
}

/** Returns the next part of the stream: the activities of some threads. */
export function changes(part: number): Buffer {
  const messages = Array.from({ length: CHANGES }, (_, index) => {
    const { threadId, usage } = thread((part * CHANGES + index * 7) % THREADS);
    const telemetry = { threadId, usage, activity: `runs test ${part}` };
    const response = { message: { case: "telemetry" as const, value: telemetry } };
    return create(WatchResponseSchema, { update: { case: "threads", value: { sessionId: SESSION, response } } });
  });
  return Buffer.concat(messages.map((message) => frame(0, toBinary(WatchResponseSchema, message))));
}

/** Returns the body of the response to a call of the supervisor. Undefined if this module has no response. */
export function answer(method: string, request: Buffer): Buffer | undefined {
  const message = request.subarray(5);
  switch (method) {
    case "GetSession":
      return body(GetSessionResponseSchema, [create(GetSessionResponseSchema, { session: session() })]);
    case "ListActiveAgents": {
      const { pageSize, pageToken } = fromBinary(ListActiveAgentsRequestSchema, message);
      const end = Math.min(THREADS, Number(pageToken) + pageSize);
      const threads = Array.from({ length: end - Number(pageToken) }, (_, index) => thread(Number(pageToken) + index));
      const nextPageToken = end < THREADS ? String(end) : "";
      return body(ListActiveAgentsResponseSchema, [create(ListActiveAgentsResponseSchema, { threads, nextPageToken })]);
    }
    case "ListTranscript":
      return body(ListTranscriptResponseSchema, [create(ListTranscriptResponseSchema, { entries: toolCalls() })]);
    case "WatchThreads":
      return body(WatchThreadsResponseSchema, events(Number(fromBinary(WatchThreadsRequestSchema, message).afterSequence)));
    default:
      return undefined;
  }
}

function session() {
  return { sessionId: SESSION, cwd: "/home/me/parser", sequence: BigInt(EVENTS) };
}

function id(thread: number): string {
  return `01a21ced-b5dd-72f7-a009-${String(thread).padStart(12, "0")}`;
}

function thread(index: number): Thread {
  return create(ThreadSchema, {
    sessionId: SESSION,
    threadId: id(index),
    parentThreadId: index === 0 ? "" : id(Math.floor((index - 1) / 8)),
    depth: index === 0 ? 0 : 1,
    agentType: index % 3 ? "worker" : "reviewer",
    alias: `agent-${index}`,
    label: `Reviews part ${index} of the parser`,
    model: "gpt-5.2-codex",
    status: { kind: index % 5 ? StatusKind.RUNNING : StatusKind.COMPLETED, since: { seconds: BigInt(START) } },
    activity: `reads src/part_${index}.rs`,
    usage: { inputTokens: BigInt((index % 50) * 1_000), outputTokens: 50n },
    createTime: { seconds: BigInt(START) },
  });
}

function* snapshot(): Iterable<WatchResponse> {
  yield create(WatchResponseSchema, { update: { case: "session", value: { session: session(), synced: true } } });
  for (let start = 0; start < THREADS; start += PART) {
    const value = {
      ...(start === 0 ? { session: session() } : {}),
      threads: Array.from({ length: Math.min(PART, THREADS - start) }, (_, index) => thread(start + index)),
      last: start + PART >= THREADS,
    };
    const response = { message: { case: "snapshot" as const, value } };
    yield create(WatchResponseSchema, { update: { case: "threads", value: { sessionId: SESSION, response } } });
  }
}

function* events(after: number) {
  for (let sequence = after + 1; sequence <= EVENTS; sequence += 1) {
    yield create(WatchThreadsResponseSchema, { sequence: BigInt(sequence), message: { case: "event", value: event(sequence) } });
  }
}

/** Returns an event. Each thread has one of 10,000 consecutive events; ten threads work at a time. */
function event(sequence: number): Event {
  const turn = Math.floor(sequence / 40) + 1;
  const time = START + sequence / 10;
  return create(EventSchema, {
    sessionId: SESSION,
    threadId: id(((Math.floor(sequence / 40) * 10 + (sequence % 10)) * 7) % THREADS),
    sequence: BigInt(sequence),
    time: { seconds: BigInt(Math.floor(time)), nanos: Math.round((time % 1) * 1e9) },
    actor: "runner:local",
    traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    kind: kindOf(Math.floor(sequence / 10) % 4, turn),
  });
}

function kindOf(step: number, turn: number): EventKind {
  switch (step) {
    case 0:
      return { case: "inputQueued", value: { number: turn, from: "thread:lead" } };
    case 1:
      return { case: "turnStarted", value: { turn, generation: 1 } };
    case 2:
      return { case: "usageRecorded", value: { generation: 1, usage: { inputTokens: 1_000n, outputTokens: 50n, turns: turn } } };
    default:
      return {
        case: "turnEnded",
        value: { turn, generation: 1, outcome: TurnOutcome.COMPLETED, message: `Part ${turn} has no defect. ${"The tests pass. ".repeat(8)}` },
      };
  }
}

function toolCalls() {
  return Array.from({ length: 20 }, (_, index) => ({
    index: BigInt(index),
    kind: TranscriptKind.TOOL_CALL,
    time: { seconds: BigInt(START + EVENTS / 10 - index) },
    toolCall: { callId: "", tool: "read_file" },
  }));
}
