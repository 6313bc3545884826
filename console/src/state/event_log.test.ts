import { create } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { beforeEach, expect, test, vi } from "vitest";

import { CallError } from "../api/errors";
import { WatchThreadsResponseSchema } from "../model/messages";

const supervisor = vi.hoisted(() => ({ getSession: vi.fn(), watchThreads: vi.fn() }));
vi.mock("../api/clients", () => ({ supervisor }));

import { EventLog } from "./event_log.svelte";

let head = 0n;
let removed = 0n;
/** Resolved when reads after the first one may return. */
let gate: Promise<void> = Promise.resolve();
const requests: bigint[] = [];

beforeEach(() => {
  removed = 0n;
  requests.length = 0;
  supervisor.getSession.mockImplementation(async () => ({ session: { sequence: head } }));
  supervisor.watchThreads.mockImplementation(async function* ({ afterSequence }: { afterSequence: bigint }) {
    requests.push(afterSequence);
    if (requests.length > 1) await gate;
    if (afterSequence < removed) throw new CallError("compacted", { code: Code.OutOfRange, reason: "HISTORY_COMPACTED", metadata: { oldest: String(removed) } });
    for (let sequence = afterSequence + 1n; sequence <= head; sequence += 1n) {
      yield create(WatchThreadsResponseSchema, { sequence, message: { case: "event", value: { sequence } } });
    }
  });
});

function rangeOf({ events, isCut }: EventLog): unknown[] {
  const isContiguous = events.every(({ sequence }, index) => sequence === (events[0]?.sequence ?? 0n) + BigInt(index));
  return [events[0]?.sequence, events.at(-1)?.sequence, isCut, isContiguous];
}

test("newest_events_are_read_first", async () => {
  head = 30_000n;
  let open = (): void => undefined;
  gate = new Promise((resolve) => (open = resolve));
  const log = new EventLog("s");
  const reading = log.read();
  await vi.waitUntil(() => log.isLoaded);
  expect(rangeOf(log)).toEqual([29_501n, 30_000n, true, true]);
  open();
  await reading;
  expect(rangeOf(log)).toEqual([10_001n, 30_000n, true, true]);
  expect(requests).toEqual([29_500n, 10_000n]);
});

test("log_keeps_the_latest_events", async () => {
  head = 30_000n;
  const log = new EventLog("s");
  await log.read();
  head += 5n;
  await log.read();
  expect(rangeOf(log)).toEqual([10_006n, 30_005n, true, true]);
  expect(requests.at(-1)).toBe(30_000n);
});

test("short_log_is_complete", async () => {
  head = 700n;
  const log = new EventLog("s");
  await log.read();
  expect(rangeOf(log)).toEqual([1n, 700n, false, true]);
});

test("log_restarts_after_many_events", async () => {
  head = 100n;
  const log = new EventLog("s");
  await log.read();
  head = 1_000_000n;
  await log.read();
  expect(rangeOf(log)).toEqual([980_001n, 1_000_000n, true, true]);
  expect(requests).toEqual([0n, 999_500n, 980_000n]);
});

test("removed_events_are_left_out", async () => {
  [head, removed] = [30_000n, 29_000n];
  const log = new EventLog("s");
  await log.read();
  expect([rangeOf(log), log.error]).toEqual([[29_001n, 30_000n, true, true], ""]);
  removed = 29_900n;
  const short = new EventLog("s");
  await short.read();
  expect([rangeOf(short), short.error]).toEqual([[29_901n, 30_000n, true, true], ""]);
});

test("failed_read_of_earlier_events_is_repeated", async () => {
  head = 1_000n;
  const stream = supervisor.watchThreads.getMockImplementation();
  supervisor.watchThreads.mockImplementationOnce(stream ?? vi.fn()).mockImplementationOnce(async function* () {
    throw new CallError("no connection", { code: Code.Unavailable });
  });
  const log = new EventLog("s");
  await log.read();
  expect([rangeOf(log), log.error]).toEqual([[501n, 1_000n, true, true], "no connection"]);
  await log.read();
  expect([rangeOf(log), log.error]).toEqual([[1n, 1_000n, false, true], ""]);
});
