import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { notices } from "./notices.svelte";
import { SteadyList } from "./steady";

beforeEach(() => vi.useFakeTimers({ now: 10_000 }));
afterEach(() => vi.useRealTimers());

test("buttons_wait_after_the_list_moved_by_itself", () => {
  const list = new SteadyList();
  list.draw(["a", "b"]);
  expect(list.begin()).toBe(true);
  list.draw(["b"]);
  list.draw([]);
  expect(list.begin()).toBe(false);
  expect(notices.list.at(-1)?.isError).toBe(true);
  vi.advanceTimersByTime(1_000);
  expect(list.begin()).toBe(true);
});

test("own_decision_and_new_entries_do_not_block_buttons", () => {
  const list = new SteadyList();
  list.draw(["a"]);
  list.draw(["a", "b"]);
  expect(list.begin()).toBe(true);
  list.draw(["b"]);
  expect(list.begin()).toBe(true);
});
