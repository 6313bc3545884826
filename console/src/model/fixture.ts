// Messages for tests.

import { create } from "@bufbuild/protobuf";

import { ThreadSchema, type StatusKind, type Thread } from "./messages";

export { event, threadsResponse } from "../../../sdk/typescript/tests/messages";

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
