import { create } from "@bufbuild/protobuf";
import { expect, test, vi } from "vitest";

import { WatchThreadsResponseSchema } from "../model/messages";

const supervisor = vi.hoisted(() => ({ getSession: vi.fn(), watchThreads: vi.fn() }));
vi.mock("../api/clients", () => ({ supervisor }));

import { EventLog } from "./event_log.svelte";

test("log_keeps_the_latest_events", async () => {
  let head = 30_000n;
  supervisor.getSession.mockImplementation(async () => ({ session: { sequence: head } }));
  supervisor.watchThreads.mockImplementation(async function* ({ afterSequence }: { afterSequence: bigint }) {
    for (let sequence = afterSequence + 1n; sequence <= head; sequence += 1n) {
      yield create(WatchThreadsResponseSchema, { sequence, message: { case: "event", value: { sequence } } });
    }
  });
  const log = new EventLog("s");
  await log.read();
  expect([log.events.length, log.events[0]?.sequence, log.isCut]).toEqual([20_000, 10_001n, true]);
  head += 5n;
  await log.read();
  expect([log.events.length, log.events[0]?.sequence, log.events.at(-1)?.sequence]).toEqual([20_000, 10_006n, 30_005n]);
});
