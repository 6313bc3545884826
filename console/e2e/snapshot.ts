// A stream of a session with many threads. The browser test bundles this file, because it needs the generated messages.

import { create, toBinary } from "@bufbuild/protobuf";

import { WatchResponseSchema, type WatchResponse } from "../src/gen/troupe/console/v1/console_pb";
import { StatusKind, ThreadSchema, type Thread } from "../src/model/messages";

export const THREADS = 10_000;
const PART = 256;
export const SESSION = "01a21ced-b5cd-7029-99b2-beb5a79f2e78";

/** Returns the body of a stream: each message with its prefix, then the trailers. */
export function body(messages: WatchResponse[]): Buffer {
  const frame = (flag: number, data: Uint8Array) => {
    const head = Buffer.alloc(5);
    head[0] = flag;
    head.writeUInt32BE(data.length, 1);
    return Buffer.concat([head, data]);
  };
  const frames = messages.map((message) => frame(0, toBinary(WatchResponseSchema, message)));
  return Buffer.concat([...frames, frame(0x80, Buffer.from("grpc-status: 0\r\n"))]);
}

function thread(index: number): Thread {
  const id = (number: number) => `01a21ced-b5dd-72f7-a009-${String(number).padStart(12, "0")}`;
  return create(ThreadSchema, {
    sessionId: SESSION,
    threadId: id(index),
    parentThreadId: index === 0 ? "" : id(Math.floor((index - 1) / 8)),
    depth: index === 0 ? 0 : 1,
    agentType: index % 3 ? "worker" : "reviewer",
    alias: `agent-${index}`,
    label: `Reviews part ${index} of the parser`,
    model: "gpt-5.2-codex",
    status: { kind: index % 5 ? StatusKind.RUNNING : StatusKind.COMPLETED, since: { seconds: 1_700_000_000n } },
    activity: `reads src/part_${index}.rs`,
    usage: { inputTokens: BigInt(index) * 100n, outputTokens: 50n },
    createTime: { seconds: 1_700_000_000n },
  });
}

export function snapshot(): WatchResponse[] {
  const session = { sessionId: SESSION, cwd: "/home/me/parser" };
  const all = Array.from({ length: THREADS }, (_, index) => thread(index));
  const messages = [create(WatchResponseSchema, { update: { case: "session", value: { session, synced: true } } })];
  for (let start = 0; start < THREADS; start += PART) {
    const value = {
      ...(start === 0 ? { session } : {}),
      threads: all.slice(start, start + PART),
      last: start + PART >= THREADS,
    };
    const response = { message: { case: "snapshot" as const, value } };
    messages.push(create(WatchResponseSchema, { update: { case: "threads", value: { sessionId: SESSION, response } } }));
  }
  return messages;
}
