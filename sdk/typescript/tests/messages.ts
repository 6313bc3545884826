// Messages of a watch.

import { create, type MessageInitShape } from "@bufbuild/protobuf";

import type { EventSchema } from "../src/gen/troupe/supervisor/v1/event_pb.js";
import { type WatchThreadsResponse, WatchThreadsResponseSchema } from "../src/gen/troupe/supervisor/v1/supervisor_pb.js";
import { StatusKind } from "../src/gen/troupe/supervisor/v1/thread_pb.js";

/** Returns an event of a thread. */
export function event(
  sequence: bigint,
  threadId: string,
  kind: NonNullable<MessageInitShape<typeof EventSchema>["kind"]>,
  seconds = 0n,
): WatchThreadsResponse {
  return threadsResponse({ case: "event", value: { sequence, threadId, kind, time: { seconds } } });
}

export function threadsResponse(
  message: NonNullable<MessageInitShape<typeof WatchThreadsResponseSchema>["message"]>,
): WatchThreadsResponse {
  return create(WatchThreadsResponseSchema, { message });
}

export function spawn(sequence: bigint, threadId: string, parentThreadId = ""): WatchThreadsResponse {
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
