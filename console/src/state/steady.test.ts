import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { notices } from "./notices.svelte";
import { SteadyList } from "./steady";

beforeEach(() => vi.useFakeTimers({ now: 10_000 }));
afterEach(() => vi.useRealTimers());

test("move_of_the_list_blocks_buttons", () => {
  const list = new SteadyList();
  list.draw(["a", "b"]);
  list.draw(["b"]);
  expect(list.begin(["b"])).toBe(false);
  expect(notices.list.at(-1)?.isError).toBe(true);
  vi.advanceTimersByTime(1_000);
  expect(list.begin(["b"])).toBe(true);
});

test("new_entries_do_not_block_buttons", () => {
  const list = new SteadyList();
  list.draw(["a"]);
  list.draw(["a", "b"]);
  expect(list.begin(["a"])).toBe(true);
});

test("double_click_does_not_decide_the_next_entry", () => {
  const list = new SteadyList();
  const { length } = notices.list;
  list.draw(["a", "b"]);
  expect(list.begin(["a"])).toBe(true);
  list.draw(["b"]);
  expect(list.begin(["b"])).toBe(false);
  expect(notices.list).toHaveLength(length);
  vi.advanceTimersByTime(500);
  expect(list.begin(["b"])).toBe(true);
});

test("move_with_own_decision_blocks_buttons", () => {
  const list = new SteadyList();
  list.draw(["a", "b", "c"]);
  expect(list.begin(["a"])).toBe(true);
  list.draw(["c"]);
  vi.advanceTimersByTime(600);
  expect(list.begin(["c"])).toBe(false);
});

test("move_after_own_decision_blocks_buttons", () => {
  const list = new SteadyList();
  list.draw(["a", "b", "c"]);
  expect(list.begin(["a"])).toBe(true);
  list.draw(["b", "c"]);
  list.draw(["c"]);
  vi.advanceTimersByTime(600);
  expect(list.begin(["c"])).toBe(false);
});
