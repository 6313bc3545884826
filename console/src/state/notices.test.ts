import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { notices } from "./notices.svelte";

beforeEach(() => vi.useFakeTimers({ now: 100_000 }));
afterEach(() => vi.useRealTimers());

test("repeated_announcement_changes_the_text", () => {
  notices.announce("1 approval waiting");
  vi.advanceTimersByTime(5_000);
  const first = notices.announcement;
  notices.announce("1 approval waiting");
  vi.advanceTimersByTime(5_000);
  expect(notices.announcement).not.toBe(first);
  expect(notices.announcement.trim()).toBe("1 approval waiting");
});
