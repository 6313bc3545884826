import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";

import { event, spawn, threadsResponse } from "./fixture";
import { ConditionKind, GroupSchema, GroupState, StatusKind, TurnOutcome } from "./messages";
import { apply, emptyView, putReadGroup, putReadThread, type SessionView } from "./session_view";

function status(view: SessionView, id: string): StatusKind | undefined {
  return view.threads.get(id)?.status?.kind;
}

function folded(...messages: Parameters<typeof apply>[1][]): SessionView {
  const view = emptyView();
  for (const message of messages) apply(view, message);
  return view;
}

describe("session view", () => {
  test("thread_status_follows_events", () => {
    const view = folded(spawn(1n, "a"));
    expect(status(view, "a")).toBe(StatusKind.PENDING_INIT);
    apply(view, event(2n, "a", { case: "turnStarted", value: { turn: 1 } }));
    expect(status(view, "a")).toBe(StatusKind.RUNNING);
    apply(
      view,
      event(3n, "a", { case: "turnEnded", value: { turn: 1, outcome: TurnOutcome.COMPLETED, message: "found it" } }, 9n),
    );
    expect(view.threads.get("a")?.status).toMatchObject({
      kind: StatusKind.COMPLETED,
      message: "found it",
      since: { seconds: 9n },
    });
    apply(view, event(4n, "a", { case: "closeRequested", value: {} }));
    expect(view.threads.get("a")?.conditions).toHaveLength(1);
    apply(view, event(5n, "a", { case: "threadClosed", value: {} }));
    expect(view.threads.get("a")).toMatchObject({
      status: { kind: StatusKind.SHUTDOWN, message: "found it" },
      conditions: [],
      sequence: 5n,
      generation: 2,
    });
  });

  test("change_replaces_the_message_of_its_thread_only", () => {
    const view = folded(spawn(1n, "a"), spawn(2n, "b", "a"));
    const before = [...view.threads.values()];
    apply(view, event(3n, "b", { case: "turnStarted", value: { turn: 1 } }));
    expect(view.threads.get("a")).toBe(before[0]);
    expect(view.threads.get("b")).not.toBe(before[1]);
    expect(before[1]?.status?.kind).toBe(StatusKind.PENDING_INIT);
  });

  test("spawn_order_is_kept_and_unknown_threads_ignored", () => {
    const view = folded(
      spawn(1n, "a"),
      spawn(2n, "b", "a"),
      event(3n, "unknown", { case: "turnStarted", value: { turn: 1 } }),
    );
    expect([...view.threads.keys()]).toEqual(["a", "b"]);
  });

  test("usage_of_all_attempts_adds_up", () => {
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
    expect(usage(), "not telemetry twice").toMatchObject({ inputTokens: 10n, costMicros: 7n });
    apply(view, ended(30n, 5n));
    expect(usage(), "one attempt").toMatchObject({ inputTokens: 30n, costMicros: 5n });
    apply(view, placed(2));
    apply(view, ended(4n, 1n));
    expect(usage(), "two attempts").toMatchObject({ inputTokens: 34n, costMicros: 6n });
    expect([...view.unclear.threads]).toEqual(["a"]);
  });

  test("conditions_end_with_their_cause", () => {
    const begins = (kind: ConditionKind) => event(2n, "a", { case: "conditionChanged", value: { kind, active: true } });
    const view = folded(
      spawn(1n, "a"),
      begins(ConditionKind.AWAITING_INPUT),
      begins(ConditionKind.UNREACHABLE),
      begins(ConditionKind.STALLED),
      event(5n, "a", { case: "inputQueued", value: {} }),
      event(6n, "a", { case: "turnEnded", value: {} }),
    );
    expect(view.threads.get("a")?.conditions.map(({ kind }) => kind)).toEqual([ConditionKind.STALLED]);
  });

  test("telemetry_of_old_generation_is_ignored", () => {
    const telemetry = (generation: number) =>
      threadsResponse({ case: "telemetry", value: { threadId: "a", generation, activity: "reading" } });
    const view = folded(spawn(1n, "a"), telemetry(2));
    expect(view.threads.get("a")?.activity).toBe("");
    apply(view, telemetry(1));
    expect(view.threads.get("a")?.activity).toBe("reading");
  });

  test("approval_waits_until_it_is_decided", () => {
    const view = folded(
      spawn(1n, "a"),
      spawn(2n, "b", "a"),
      event(3n, "b", {
        case: "approvalRequested",
        value: { approvalId: "p", subject: "Tool call: x", content: { digest: "d" }, deadline: { seconds: 600n } },
      }),
    );
    expect(view.approvals.get("p")).toMatchObject({
      threadId: "b",
      subject: "Tool call: x",
      content: { digest: "d" },
      deadline: { seconds: 600n },
      threads: [{ threadId: "b" }, { threadId: "a" }],
    });
    apply(view, event(4n, "b", { case: "approvalResolved", value: { approvalId: "p" } }));
    expect(view.approvals.size).toBe(0);
  });

  test("groups_are_read_again_after_their_events", () => {
    const view = folded(
      spawn(1n, "a"),
      event(2n, "a", { case: "groupCreated", value: { spec: { groupId: "g", itemCount: 4 } } }),
      event(3n, "a", { case: "groupItemEnded", value: { groupId: "g" } }),
    );
    expect(view.groups.get("g")).toMatchObject({ pending: 4, parentThreadId: "a" });
    expect([...view.unclear.groups]).toEqual(["g"]);
    apply(view, event(4n, "a", { case: "groupEnded", value: { groupId: "g" } }));
    putReadGroup(view, create(GroupSchema, { spec: { groupId: "g" }, state: GroupState.RUNNING }));
    expect(view.groups.size).toBe(0);
  });

  test("settings_of_the_session_follow_updates", () => {
    const view = folded(
      threadsResponse({
        case: "snapshot",
        value: { session: { sessionId: "s", limits: { maxDepth: 2, maxThreads: 4 } }, threads: [{ threadId: "a" }], last: true },
      }),
      event(1n, "", { case: "sessionUpdated", value: { paused: true, limits: { maxThreads: 8 }, budget: { tokens: 9n } } }),
    );
    expect(view.session).toMatchObject({ paused: true, limits: { maxDepth: 2, maxThreads: 8 }, budget: { tokens: 9n } });
    expect(view.threads.get("a")?.budget).toMatchObject({ tokens: 9n });
  });

  test("first_part_of_a_snapshot_replaces_the_view", () => {
    const view = folded(spawn(1n, "old"));
    const part = (value: object) => threadsResponse({ case: "snapshot", value });
    apply(view, part({ session: { sessionId: "s" }, threads: [{ threadId: "a" }] }));
    expect([...view.threads.keys()]).toEqual(["a"]);
    expect(view.isComplete).toBe(false);
    apply(view, part({ threads: [{ threadId: "b" }], last: true }));
    expect([...view.threads.keys()]).toEqual(["a", "b"]);
    expect(view.isComplete).toBe(true);
  });

  test("thread_that_was_read_does_not_hide_later_events", () => {
    const view = folded(spawn(5n, "a"));
    const known = view.threads.get("a");
    if (!known) throw new Error("no thread");
    putReadThread(view, { ...known, sequence: 4n, alias: "old" });
    expect(view.threads.get("a")?.alias).toBe("");
    putReadThread(view, { ...known, sequence: 6n, alias: "new" });
    expect(view.threads.get("a")?.alias).toBe("new");
  });
});
