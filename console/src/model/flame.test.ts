import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";

import { thread } from "./fixture";
import { flame, tokenRows, totalOf, type FlameCell, type TokenRow } from "./flame";
import { StatusKind, UsageSchema } from "./messages";
import { treeRows } from "./tree";

function rowsOf(threads: [id: string, parent: string, tokens: number][]): TokenRow[] {
  const list = threads.map(([id, parent, tokens]) =>
    thread(id, parent, "worker", StatusKind.RUNNING, { usage: create(UsageSchema, { inputTokens: BigInt(tokens) }) }),
  );
  return tokenRows(treeRows(list, new Set()));
}

function textOf(levels: FlameCell[][]): string[] {
  const share = (value: number) => Math.round(value * 100);
  return levels.map((cells) =>
    cells.map(({ key, threads, x, width }) => `${key} ${threads} ${share(x)}+${share(width)}`).join(", "),
  );
}

const rows = rowsOf([
  ["a", "", 10],
  ["b", "a", 20],
  ["c", "b", 30],
  ["d", "a", 36],
  ["e", "a", 2],
  ["f", "a", 2],
  ["g", "a", 0],
]);

test("tokens_of_a_thread_include_those_of_its_descendants", () => {
  expect(rows.map(({ thread, own, total }) => `${thread.threadId} ${own} ${total}`)).toEqual([
    ...["a 10 100", "b 20 50", "c 30 30", "d 36 36", "e 2 2", "f 2 2", "g 0 0"],
  ]);
  expect(totalOf(rows)).toBe(100n);
});

test("narrow_threads_share_a_cell", () => {
  expect(textOf(flame(rows, "", 0.03))).toEqual(["a 1 0+100", "b 1 0+50, d 1 50+36, a+ 2 86+4", "c 1 0+30"]);
  expect(textOf(flame(rows, "", 0.05))).toEqual(["a 1 0+100", "b 1 0+50, d 1 50+36", "c 1 0+30"]);
});

test("ancestors_of_the_zoomed_thread_have_the_full_width", () => {
  expect(textOf(flame(rows, "b", 0.03))).toEqual(["a 1 0+100", "b 1 0+100", "c 1 0+60"]);
});

test("unknown_thread_is_not_zoomed", () => {
  expect(flame(rows, "x", 0.03)).toEqual(flame(rows, "", 0.03));
});

test("session_without_tokens_has_no_cells", () => {
  expect(flame(rowsOf([["a", "", 0]]), "", 0.01)).toEqual([]);
  expect(flame([], "", 0.01)).toEqual([]);
});

test("cells_lie_within_their_parents_and_are_bounded", () => {
  const many = rowsOf(Array.from({ length: 5_000 }, (_, index) => [id(index), index ? id((index * 7) % index) : "", index % 97]));
  const levels = flame(many, "", 0.01);
  const cells = new Map(levels.flat().map((cell) => [cell.key, cell]));
  for (const level of levels) {
    expect(level.length).toBeLessThanOrEqual(100);
    for (const [index, { x, width, row }] of level.entries()) {
      const next = level[index + 1];
      if (next) expect(next.x).toBeGreaterThanOrEqual(x + width - 1e-9);
      const parent = row && cells.get(row.thread.parentThreadId);
      if (!parent) continue;
      expect(x).toBeGreaterThanOrEqual(parent.x - 1e-9);
      expect(x + width).toBeLessThanOrEqual(parent.x + parent.width + 1e-9);
    }
  }
});

test("deep_tree_has_a_cell_per_level", () => {
  const chain = rowsOf(Array.from({ length: 10_000 }, (_, index) => [id(index), index ? id(index - 1) : "", 1]));
  expect(flame(chain, "", 0.01)).toHaveLength(9_901);
});

function id(index: number): string {
  return String(index).padStart(5, "0");
}
