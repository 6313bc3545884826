import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";

import { WatchResponseSchema } from "../gen/troupe/console/v1/console_pb";
import { event, thread, threadsResponse } from "./fixture";
import { ConditionKind, StatusKind } from "./messages";
import { emptyModel, fold, isComplete, needsOf, sessionOf, totalsOf, type Model } from "./model";

type Update = NonNullable<MessageInitShape<typeof WatchResponseSchema>["update"]>;

function update(model: Model, value: Update): void {
  fold(model, create(WatchResponseSchema, { update: value }));
}

function modelWith(...threads: ReturnType<typeof thread>[]): Model {
  const model = emptyModel();
  update(model, { case: "session", value: { session: { sessionId: "s" }, synced: true } });
  const response = threadsResponse({ case: "snapshot", value: { session: { sessionId: "s" }, threads, last: true } });
  update(model, { case: "threads", value: { sessionId: "s", response } });
  return model;
}

test("model_is_complete_with_the_last_snapshot", () => {
  const model = emptyModel();
  expect(isComplete(model)).toBe(false);
  update(model, { case: "session", value: { session: { sessionId: "s" } } });
  update(model, { case: "session", value: { synced: true } });
  expect(isComplete(model)).toBe(false);
  update(model, { case: "unfollowed", value: { sessionId: "s", reason: "no" } });
  expect(isComplete(model)).toBe(true);
  expect(isComplete(modelWith())).toBe(true);
});

test("interrupted_session_does_not_block_the_model", () => {
  const model = emptyModel();
  update(model, { case: "session", value: { session: { sessionId: "s" }, synced: true } });
  expect(isComplete(model)).toBe(false);
  update(model, { case: "interruptedSessionId", value: "s" });
  expect(isComplete(model)).toBe(true);
});

test("session_has_the_newest_time_and_roll_up", () => {
  const model = modelWith();
  const session = { sessionId: "s", sequence: 9n, updateTime: { seconds: 5n }, rollUp: { usage: { inputTokens: 7n } } };
  update(model, { case: "session", value: { session } });
  const followed = model.sessions.get("s");
  expect(followed && sessionOf(followed)).toMatchObject(session);
});

test("totals_count_open_sessions", () => {
  const model = modelWith(
    thread("1", "", "default", StatusKind.RUNNING),
    thread("2", "1", "worker", StatusKind.QUEUED),
    thread("3", "1", "worker", StatusKind.SHUTDOWN),
    thread("4", "1", "worker", StatusKind.RUNNING),
  );
  expect(totalsOf(model)).toEqual({ sessions: 1, threads: 3, running: 1, queued: 1, approvals: 0 });
  update(model, { case: "session", value: { session: { sessionId: "s", closed: true }, removed: true } });
  expect(totalsOf(model)).toMatchObject({ sessions: 0, threads: 0 });
});

test("approvals_come_first_and_replace_their_threads", () => {
  const model = modelWith(
    thread("1", "", "default", StatusKind.RUNNING),
    thread("2", "1", "worker", StatusKind.ERRORED),
    thread("3", "1", "worker", StatusKind.AWAITING_APPROVAL),
  );
  const response = event(9n, "3", { case: "approvalRequested", value: { approvalId: "p" } });
  update(model, { case: "threads", value: { sessionId: "s", response } });
  const needs = needsOf(model).map(({ approval, thread }) => approval?.approvalId ?? thread?.threadId);
  expect(needs).toEqual(["p", "2"]);
});

test("thread_with_decided_approval_is_not_listed", () => {
  const model = modelWith(
    thread("1", "", "default", StatusKind.RUNNING, { conditions: [{ kind: ConditionKind.AWAITING_TOOL_APPROVAL }] }),
  );
  expect(needsOf(model)).toEqual([]);
});

test("deleted_session_is_removed", () => {
  const model = modelWith();
  update(model, { case: "deletedSessionId", value: "s" });
  expect(model.sessions.size).toBe(0);
});

test("session_message_ends_lost_connection", () => {
  const model = modelWith();
  update(model, { case: "lost", value: "connection refused" });
  expect(model.lost).toBe("connection refused");
  update(model, { case: "session", value: { session: { sessionId: "s" } } });
  expect(model.lost).toBe("");
});
