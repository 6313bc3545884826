import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";

import { event } from "./fixture";
import { ConditionKind, StatusKind, TranscriptEntrySchema, TranscriptKind, ToolVerdict, TurnOutcome, type Event } from "./messages";
import { callEnd, lanes, scaleOf, timeIn, toolSpans, type Span } from "./timeline";

function eventAt(seconds: bigint, threadId: string, kind: Parameters<typeof event>[2]): Event {
  const { message } = event(seconds, threadId, kind, seconds);
  if (message.case !== "event") throw new Error("no event");
  return message.value;
}

const turn = [
  eventAt(0n, "a", { case: "threadSpawned", value: { firstStatus: StatusKind.QUEUED } }),
  eventAt(2n, "a", { case: "threadAdmitted", value: {} }),
  eventAt(3n, "a", { case: "turnStarted", value: { turn: 1 } }),
  eventAt(4n, "a", { case: "approvalRequested", value: { approvalId: "p" } }),
  eventAt(6n, "a", { case: "approvalResolved", value: { approvalId: "p" } }),
  eventAt(9n, "a", { case: "turnEnded", value: { turn: 1, outcome: TurnOutcome.ERRORED } }),
];

test("turn_has_its_queue_start_and_outcome", () => {
  expect(lanes(turn).get("a")).toEqual([
    { kind: "queued", start: 0, end: 2000 },
    { kind: "starting", start: 2000, end: 3000 },
    { kind: "errored", start: 3000, end: 9000 },
    { kind: "approval", start: 4000, end: 6000 },
  ]);
});

test("running_turn_has_no_end_until_its_thread_is_closed", () => {
  const running = turn.slice(0, 3);
  expect(lanes(running).get("a")?.at(-1)).toEqual({ kind: "running", start: 3000, end: undefined });
  const closed = lanes([...running, eventAt(5n, "a", { case: "threadClosed", value: {} })]).get("a");
  expect(closed?.at(-1)).toEqual({ kind: "interrupted", start: 3000, end: 5000 });
});

test("stalled_ends_with_its_turn", () => {
  const stalled = eventAt(5n, "a", { case: "conditionChanged", value: { kind: ConditionKind.STALLED, active: true } });
  const lane = lanes([...turn.slice(0, 5), stalled, ...turn.slice(5)]).get("a");
  expect(lane?.at(-1)).toEqual({ kind: "stalled", start: 5000, end: 9000 });
});

test("long_gap_is_compressed", () => {
  const spans: Span[] = [
    { kind: "running", start: 0, end: 100 },
    { kind: "running", start: 10_000, end: 10_100 },
  ];
  const { place, gaps } = scaleOf(spans, 10_100);
  expect(gaps).toEqual([{ start: 100, end: 10_000 }]);
  expect(place(0)).toBe(0);
  expect(place(10_100)).toBe(1);
  expect(place(10_000) - place(100)).toBeCloseTo(0.029, 2);
  expect(place(5_050)).toBeCloseTo(0.5, 2);
});

test("scale_without_spans_is_defined", () => {
  expect(scaleOf([], 5).place(5)).toBe(0);
});

test("tool_calls_end_with_their_results", () => {
  const entry = (seconds: bigint, init: object) => create(TranscriptEntrySchema, { time: { seconds }, ...init });
  const call = (seconds: bigint, callId: string, verdict = ToolVerdict.ALLOWED) =>
    entry(seconds, { kind: TranscriptKind.TOOL_CALL, toolCall: { callId, tool: "x", verdict } });
  const spans = toolSpans([
    call(1n, "a"),
    entry(3n, { kind: TranscriptKind.TOOL_RESULT, toolResult: { callId: "a" } }),
    call(4n, ""),
    call(5n, "b"),
    call(6n, "c", ToolVerdict.DENIED),
  ]);
  expect(spans.map(({ start, end }) => [start, end])).toEqual([
    [1000, 3000],
    [4000, 4000],
    [5000, undefined],
    [6000, 6000],
  ]);
});

test.each([
  [10, undefined, 20],
  [10, 15, 15],
  [25, undefined, undefined],
])("call from %s to %s ends at %s", (start, end, expected) => {
  const turns: Span[] = [
    { kind: "queued", start: 0, end: 30 },
    { kind: "interrupted", start: 5, end: 20 },
    { kind: "running", start: 22, end: undefined },
  ];
  expect(callEnd({ tool: "t", start, end }, turns)).toBe(expected);
});

test("time_of_kinds_is_summed", () => {
  const spans: Span[] = [
    { kind: "queued", start: 0, end: 10 },
    { kind: "running", start: 10, end: undefined },
  ];
  expect(timeIn(spans, ["running"], 30)).toBe(20);
  expect(timeIn(spans, ["queued", "running"], 30)).toBe(30);
});
