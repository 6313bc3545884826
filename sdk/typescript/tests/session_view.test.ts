// The view of a session, folded from messages.

import assert from "node:assert/strict";
import { test } from "node:test";

import { create } from "@bufbuild/protobuf";

import { TurnOutcome } from "../src/gen/troupe/supervisor/v1/event_pb.js";
import { GroupSchema, GroupState } from "../src/gen/troupe/supervisor/v1/group_pb.js";
import { ConditionKind, StatusKind } from "../src/gen/troupe/supervisor/v1/thread_pb.js";
import { apply, emptyView, putReadGroup, putReadThread, type SessionView } from "../src/session_view.js";
import { event, threadsResponse, spawn } from "./messages.js";

/** Fails unless the value has these properties with these values. */
function assertMatch(value: unknown, expected: unknown, path = "value"): void {
  if (typeof expected !== "object" || expected === null) {
    assert.equal(value, expected, path);
    return;
  }
  assert.ok(typeof value === "object" && value !== null, path);
  if (Array.isArray(expected)) assert.equal((value as unknown[]).length, expected.length, path);
  for (const [name, part] of Object.entries(expected)) {
    assertMatch((value as Record<string, unknown>)[name], part, `${path}.${name}`);
  }
}

function status(view: SessionView, id: string): StatusKind | undefined {
  return view.threads.get(id)?.status?.kind;
}

function folded(...messages: Parameters<typeof apply>[1][]): SessionView {
  const view = emptyView();
  for (const message of messages) apply(view, message);
  return view;
}

test("thread status follows events", () => {
  const view = folded(spawn(1n, "a"));
  assert.equal(status(view, "a"), StatusKind.PENDING_INIT);
  apply(view, event(2n, "a", { case: "turnStarted", value: { turn: 1 } }));
  assert.equal(status(view, "a"), StatusKind.RUNNING);
  apply(
    view,
    event(3n, "a", { case: "turnEnded", value: { turn: 1, outcome: TurnOutcome.COMPLETED, message: "found it" } }, 9n),
  );
  assertMatch(view.threads.get("a")?.status, {
    kind: StatusKind.COMPLETED,
    message: "found it",
    since: { seconds: 9n },
  });
  apply(view, event(4n, "a", { case: "closeRequested", value: {} }));
  assert.equal(view.threads.get("a")?.conditions.length, 1);
  apply(view, event(5n, "a", { case: "threadClosed", value: {} }));
  assertMatch(view.threads.get("a"), {
    status: { kind: StatusKind.SHUTDOWN, message: "found it" },
    conditions: [],
    sequence: 5n,
    generation: 2,
  });
});

test("change replaces the message of its thread only", () => {
  const view = folded(spawn(1n, "a"), spawn(2n, "b", "a"));
  const before = [...view.threads.values()];
  apply(view, event(3n, "b", { case: "turnStarted", value: { turn: 1 } }));
  assert.equal(view.threads.get("a"), before[0]);
  assert.notEqual(view.threads.get("b"), before[1]);
  assert.equal(before[1]?.status?.kind, StatusKind.PENDING_INIT);
});

test("spawn order is kept and unknown threads ignored", () => {
  const view = folded(
    spawn(1n, "a"),
    spawn(2n, "b", "a"),
    event(3n, "unknown", { case: "turnStarted", value: { turn: 1 } }),
  );
  assert.deepEqual([...view.threads.keys()], ["a", "b"]);
});

test("usage of all attempts adds up", () => {
  const ended = (inputTokens: bigint, costMicros: bigint) =>
    event(3n, "a", { case: "turnEnded", value: { usage: { inputTokens, costMicros } } });
  const placed = (generation: number) => event(2n, "a", { case: "threadPlaced", value: { runnerId: "r", generation } });
  const view = folded(
    spawn(1n, "a"),
    placed(1),
    threadsResponse({ case: "telemetry", value: { threadId: "a", generation: 1, usage: { inputTokens: 8n } } }),
    ended(10n, 7n),
  );
  const usage = () => view.threads.get("a")?.usage;
  assertMatch(usage(), { inputTokens: 10n, costMicros: 7n });
  apply(view, ended(30n, 5n));
  assertMatch(usage(), { inputTokens: 30n, costMicros: 5n });
  apply(view, placed(2));
  apply(view, ended(4n, 1n));
  assertMatch(usage(), { inputTokens: 34n, costMicros: 6n });
  assert.deepEqual([...view.unclear.threads], ["a"]);
});

test("conditions end with their cause", () => {
  const begins = (kind: ConditionKind) => event(2n, "a", { case: "conditionChanged", value: { kind, active: true } });
  const view = folded(
    spawn(1n, "a"),
    begins(ConditionKind.AWAITING_INPUT),
    begins(ConditionKind.UNREACHABLE),
    begins(ConditionKind.STALLED),
    event(5n, "a", { case: "inputQueued", value: {} }),
    event(6n, "a", { case: "turnEnded", value: {} }),
  );
  assert.deepEqual(view.threads.get("a")?.conditions.map(({ kind }) => kind), [ConditionKind.STALLED]);
});

test("telemetry of old generation is ignored", () => {
  const telemetry = (generation: number) =>
    threadsResponse({ case: "telemetry", value: { threadId: "a", generation, activity: "reading" } });
  const view = folded(spawn(1n, "a"), telemetry(2));
  assert.equal(view.threads.get("a")?.activity, "");
  apply(view, telemetry(1));
  assert.equal(view.threads.get("a")?.activity, "reading");
});

test("approval waits until it is decided", () => {
  const view = folded(
    spawn(1n, "a"),
    spawn(2n, "b", "a"),
    event(3n, "b", {
      case: "approvalRequested",
      value: { approvalId: "p", subject: "Tool call: x", content: { digest: "d" }, deadline: { seconds: 600n } },
    }),
  );
  assertMatch(view.approvals.get("p"), {
    threadId: "b",
    subject: "Tool call: x",
    content: { digest: "d" },
    deadline: { seconds: 600n },
    threads: [{ threadId: "b" }, { threadId: "a" }],
  });
  apply(view, event(4n, "b", { case: "approvalResolved", value: { approvalId: "p" } }));
  assert.equal(view.approvals.size, 0);
});

test("groups are read again after their events", () => {
  const view = folded(
    spawn(1n, "a"),
    event(2n, "a", { case: "groupCreated", value: { spec: { groupId: "g", itemCount: 4 } } }),
    event(3n, "a", { case: "groupItemEnded", value: { groupId: "g" } }),
  );
  assertMatch(view.groups.get("g"), { pending: 4, parentThreadId: "a" });
  assert.deepEqual([...view.unclear.groups], ["g"]);
  apply(view, event(4n, "a", { case: "groupEnded", value: { groupId: "g" } }));
  putReadGroup(view, create(GroupSchema, { spec: { groupId: "g" }, state: GroupState.RUNNING }));
  assert.equal(view.groups.size, 0);
});

test("settings of the session follow updates", () => {
  const view = folded(
    threadsResponse({
      case: "snapshot",
      value: { session: { sessionId: "s", limits: { maxDepth: 2, maxThreads: 4 } }, threads: [{ threadId: "a" }], last: true },
    }),
    event(1n, "", { case: "sessionUpdated", value: { paused: true, limits: { maxThreads: 8 }, budget: { tokens: 9n } } }),
  );
  assertMatch(view.session, { paused: true, limits: { maxDepth: 2, maxThreads: 8 }, budget: { tokens: 9n } });
  assertMatch(view.threads.get("a")?.budget, { tokens: 9n });
});

test("first part of a snapshot replaces the view", () => {
  const view = folded(spawn(1n, "old"));
  const part = (value: object) => threadsResponse({ case: "snapshot", value });
  apply(view, part({ session: { sessionId: "s" }, threads: [{ threadId: "a" }] }));
  assert.deepEqual([...view.threads.keys()], ["a"]);
  assert.equal(view.isComplete, false);
  apply(view, part({ threads: [{ threadId: "b" }], last: true }));
  assert.deepEqual([...view.threads.keys()], ["a", "b"]);
  assert.equal(view.isComplete, true);
});

test("thread that was read does not hide later events", () => {
  const view = folded(spawn(5n, "a"));
  const known = view.threads.get("a");
  if (!known) throw new Error("no thread");
  putReadThread(view, { ...known, sequence: 4n, alias: "old" });
  assert.equal(view.threads.get("a")?.alias, "");
  putReadThread(view, { ...known, sequence: 6n, alias: "new" });
  assert.equal(view.threads.get("a")?.alias, "new");
});
