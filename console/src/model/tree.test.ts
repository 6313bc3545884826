import { expect, test } from "vitest";

import { thread } from "./fixture";
import { StatusKind } from "./messages";
import { descendantsOf, treeRows } from "./tree";

const threads = [
  thread("1", "", "default", StatusKind.RUNNING),
  thread("2", "1", "worker", StatusKind.RUNNING),
  thread("3", "1", "worker", StatusKind.RUNNING),
  thread("4", "2", "worker", StatusKind.RUNNING),
];

function ids(folded: string[]): string[] {
  return treeRows(threads, new Set(folded)).map(({ thread, level }) => `${"-".repeat(level - 1)}${thread.threadId}`);
}

test("children_are_below_their_parents", () => {
  expect(ids([])).toEqual(["1", "-2", "--4", "-3"]);
});

test("folded_thread_hides_its_descendants", () => {
  expect(ids(["2"])).toEqual(["1", "-2", "-3"]);
  expect(ids(["1"])).toEqual(["1"]);
});

test("thread_without_its_parent_is_at_the_top", () => {
  const rows = treeRows(threads.slice(1), new Set());
  expect(rows.map(({ level, position, siblings }) => [level, position, siblings])).toEqual([
    [1, 1, 2],
    [2, 1, 1],
    [1, 2, 2],
  ]);
});

test("descendants_have_any_depth", () => {
  expect(descendantsOf(threads, "1").map(({ threadId }) => threadId).sort()).toEqual(["2", "3", "4"]);
  expect(descendantsOf(threads, "3")).toEqual([]);
});

test("deep_tree_needs_no_recursion", () => {
  const deep = Array.from({ length: 20_000 }, (_, index) =>
    thread(String(index).padStart(6, "0"), index ? String(index - 1).padStart(6, "0") : "", "worker", StatusKind.RUNNING),
  );
  expect(treeRows(deep, new Set())).toHaveLength(20_000);
});
