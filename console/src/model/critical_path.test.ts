import { expect, test } from "vitest";

import { criticalPath, partsByThread, timeOf, type PathPart } from "./critical_path";
import { thread } from "./fixture";
import { StatusKind } from "./messages";
import type { Span, SpanKind } from "./timeline";
import { treeRows } from "./tree";

type Lanes = Record<string, { parent?: string; spans: [SpanKind, number, number?][] }>;

function pathOf(lanes: Lanes, now = 1_000): PathPart[] {
  const threads = Object.entries(lanes).map(([id, { parent = "" }]) => thread(id, parent, "worker", StatusKind.RUNNING));
  const spans = Object.entries(lanes).map(([id, lane]): [string, Span[]] => [
    id,
    lane.spans.map(([kind, start, end]) => ({ kind, start, end })),
  ]);
  return criticalPath(treeRows(threads, new Set()), new Map(spans), now);
}

function textOf(path: readonly PathPart[]): string {
  return path.map(({ threadId, kind, start, end }) => `${threadId} ${kind} ${start}-${end}`).join(", ");
}

const cases: [string, Lanes, string][] = [
  ["session without spans", { a: { spans: [] } }, ""],
  [
    "queue and start of the only thread",
    { a: { spans: [["queued", 0, 10], ["starting", 10, 15], ["completed", 15, 30]] } },
    "a queued 0-10, a starting 10-15, a completed 15-30",
  ],
  [
    "turn that waits for its slower child",
    {
      a: { spans: [["completed", 0, 100]] },
      b: { parent: "a", spans: [["queued", 10, 20], ["completed", 20, 60]] },
      c: { parent: "a", spans: [["completed", 12, 90]] },
    },
    "a completed 0-12, c completed 12-90, a completed 90-100",
  ],
  [
    "children one after the other",
    {
      a: { spans: [["completed", 0, 100]] },
      b: { parent: "a", spans: [["completed", 10, 40]] },
      c: { parent: "a", spans: [["errored", 50, 90]] },
    },
    "a completed 0-10, b completed 10-40, a completed 40-50, c errored 50-90, a completed 90-100",
  ],
  [
    "child that outlives the turn of its parent",
    { a: { spans: [["completed", 0, 20]] }, b: { parent: "a", spans: [["completed", 10, 90]] } },
    "a completed 0-10, b completed 10-90",
  ],
  [
    "idle parent that its child wakes",
    {
      a: { spans: [["completed", 0, 20], ["completed", 92, 100]] },
      b: { parent: "a", spans: [["completed", 10, 90]] },
      z: { spans: [["completed", 0, 91]] },
    },
    "a completed 0-10, b completed 10-90, a completed 92-100",
  ],
  [
    "grandchild that wakes a child within the turn of the root",
    {
      a: { spans: [["completed", 0, 100]] },
      b: { parent: "a", spans: [["completed", 5, 10], ["completed", 81, 95]] },
      c: { parent: "b", spans: [["completed", 8, 80]] },
    },
    "a completed 0-5, b completed 5-8, c completed 8-80, a completed 80-81, b completed 81-95, a completed 95-100",
  ],
  [
    "approval within a turn",
    { a: { spans: [["completed", 0, 50], ["approval", 10, 30], ["approval", 20, 40], ["stalled", 42, 50]] } },
    "a completed 0-10, a approval 10-40, a completed 40-50",
  ],
  [
    "threads of a client without a lane",
    {
      root: { spans: [] },
      a: { parent: "root", spans: [["completed", 0, 30]] },
      b: { parent: "root", spans: [["completed", 0, 20]] },
      c: { parent: "root", spans: [["completed", 40, 60]] },
    },
    "a completed 0-30, c completed 40-60",
  ],
  [
    "open spans end now",
    { a: { spans: [["running", 0]] }, b: { parent: "a", spans: [["starting", 10, 20], ["running", 20]] } },
    "a running 0-10, b starting 10-20, b running 20-1000",
  ],
];

test.each(cases)("path_of_%s", (_, lanes, expected) => {
  expect(textOf(pathOf(lanes))).toBe(expected);
});

test("parts_are_found_by_their_thread", () => {
  const path = pathOf({ a: { spans: [["completed", 0, 30]] }, b: { parent: "a", spans: [["completed", 10, 20]] } });
  expect([...partsByThread(path)].map(([id, parts]) => [id, textOf(parts)])).toEqual([
    ["a", "a completed 0-10, a completed 20-30"],
    ["b", "b completed 10-20"],
  ]);
  expect(timeOf(path)).toBe(30);
});

/** Returns lanes from a generator of pseudorandom numbers. */
function randomLanes(seed: number): Lanes {
  let state = seed;
  const next = (bound: number) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * bound);
  };
  const lanes: Lanes = {};
  for (let index = 0; index < 12; index += 1) {
    const spans: [SpanKind, number, number?][] = [];
    let time = next(200);
    for (let turn = next(4); turn > 0; turn -= 1) {
      const [queued, started, ended] = [next(3) * 5, next(40), next(200)];
      spans.push(["queued", time, time + queued], ["starting", time + queued, time + queued + started]);
      const start = time + queued + started;
      spans.push(["completed", start, start + ended], ["approval", start + next(20), start + ended]);
      time = start + ended + next(2) * next(100);
    }
    lanes[`t${String(index).padStart(2, "0")}`] = { parent: index ? `t${String(next(index)).padStart(2, "0")}` : "", spans };
  }
  return lanes;
}

test("path_is_in_order_within_spans_and_ends_last", () => {
  for (let seed = 1; seed <= 300; seed += 1) {
    const lanes = randomLanes(seed);
    const path = pathOf(lanes, 5_000);
    const all = Object.values(lanes).flatMap(({ spans }) => spans.filter(([, start, end = 5_000]) => end > start));
    expect(path.at(-1)?.end).toBe(all.length ? Math.max(...all.map(([, , end = 5_000]) => end)) : undefined);
    for (const [index, part] of path.entries()) {
      expect(part.end).toBeGreaterThan(part.start);
      const isWithin = lanes[part.threadId]?.spans.some(
        ([kind, start, end = 5_000]) => kind === part.kind && start <= part.start && part.end <= end,
      );
      expect(isWithin).toBe(true);
      const next = path[index + 1];
      if (!next) continue;
      expect(next.start).toBeGreaterThanOrEqual(part.end);
      // After a gap, the path continues with a thread that was idle before.
      const hasBegun = lanes[next.threadId]?.spans.some(([, start, end = 5_000]) => end > start && start === next.start);
      if (next.start > part.end) expect(hasBegun).toBe(true);
    }
  }
});

test("long_session_takes_linear_steps", () => {
  const lanes: Lanes = { "00000": { spans: [["completed", 0, 100_000]] } };
  for (let index = 1; index < 10_000; index += 1) {
    lanes[String(index).padStart(5, "0")] = { parent: "00000", spans: [["completed", index * 10, index * 10 + 9]] };
  }
  const path = pathOf(lanes);
  expect(path).toHaveLength(2 * 9_999 + 1);
});
