// Messages for tests.

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import { EventSchema, StatusKind, ThreadSchema, WatchThreadsResponseSchema, type Event, type Thread } from "./messages";

type EventInit = MessageInitShape<typeof EventSchema>;

/** Returns an event of a thread as a message of a watch. */
export function event(sequence: bigint, threadId: string, kind: NonNullable<EventInit["kind"]>, seconds = 0n) {
  const init: EventInit = { sequence, threadId, kind, time: { seconds } };
  return threadsResponse({ case: "event", value: create(EventSchema, init) as Event });
}

export function threadsResponse(message: NonNullable<MessageInitShape<typeof WatchThreadsResponseSchema>["message"]>) {
  return create(WatchThreadsResponseSchema, { message });
}

export function spawn(sequence: bigint, threadId: string, parentThreadId = "") {
  return event(sequence, threadId, {
    case: "threadSpawned",
    value: {
      parentThreadId,
      depth: parentThreadId ? 1 : 0,
      generation: 1,
      firstStatus: StatusKind.PENDING_INIT,
      agentType: "explorer",
    },
  });
}

export function thread(threadId: string, parentThreadId: string, agentType: string, kind: StatusKind, more = {}): Thread {
  return create(ThreadSchema, {
    threadId,
    parentThreadId,
    agentType,
    depth: parentThreadId ? 1 : 0,
    status: { kind },
    ...more,
  });
}
