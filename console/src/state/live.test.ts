import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { WatchResponseSchema, type WatchResponse } from "../gen/troupe/console/v1/console_pb";

const { watch, me, otherTab } = vi.hoisted(() => ({ watch: vi.fn(), me: vi.fn(), otherTab: { change: (_: "in" | "out") => {} } }));
vi.mock("../api/clients", () => ({ consoleService: { watch }, supervisor: {}, whenLoginEnds: () => {} }));
vi.mock("../api/login", () => ({ me, onOtherTab: (run: typeof otherTab.change) => (otherTab.change = run) }));
vi.mock("./address", () => ({ keepAddress: () => {}, takeAddress: () => {} }));

type Update = NonNullable<MessageInitShape<typeof WatchResponseSchema>["update"]>;

const SESSION: Update = { case: "session", value: { session: { sessionId: "s", closed: true }, synced: true } };

let page: { hidden: boolean; show: (isShown: boolean) => void };
/** The messages of each stream, which stays open. */
let streams: (Update[] | ConnectError)[];

beforeEach(() => {
  vi.resetModules();
  vi.useFakeTimers();
  let listener = () => {};
  page = {
    hidden: false,
    show: (isShown) => {
      page.hidden = !isShown;
      listener();
    },
  };
  vi.stubGlobal("document", Object.assign(page, { addEventListener: (_: string, run: () => void) => (listener = run) }));
  streams = [];
  me.mockReset().mockResolvedValue({ supervisor: "s", role: "operator", user: null, version: "1" });
  watch.mockReset().mockImplementation(async function* (_: unknown, { signal }: { signal: AbortSignal }): AsyncGenerator<WatchResponse> {
    const next = streams.shift() ?? [];
    if (next instanceof ConnectError) throw next;
    for (const update of next) yield create(WatchResponseSchema, { update });
    await new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  });
});

afterEach(() => vi.useRealTimers());

async function started() {
  const { live } = await import("./live.svelte");
  await live.start();
  await vi.advanceTimersByTimeAsync(200);
  return live;
}

test("hidden_tab_ends_its_stream_until_it_is_shown", async () => {
  streams = [[SESSION], [SESSION]];
  const live = await started();
  expect(live.isCurrent).toBe(true);
  page.show(false);
  // After 45 silent seconds, the stream counts as lost too.
  await vi.advanceTimersByTimeAsync(40_000);
  expect(live.isCurrent).toBe(true);
  await vi.advanceTimersByTimeAsync(25_000);
  const { length } = watch.mock.calls;
  await vi.advanceTimersByTimeAsync(60_000);
  expect(watch).toHaveBeenCalledTimes(length);
  expect(live.isCurrent).toBe(false);
  streams = [[SESSION]];
  page.show(true);
  await vi.advanceTimersByTimeAsync(200);
  expect(live.isCurrent).toBe(true);
});

test("page_is_not_current_if_its_new_stream_is_lost", async () => {
  streams = [[SESSION], [{ case: "lost", value: "connection refused" }]];
  const live = await started();
  live.select("s", "t");
  await vi.advanceTimersByTimeAsync(400);
  expect(watch).toHaveBeenCalledTimes(2);
  expect(live.isCurrent).toBe(false);
  expect(live.why).toBe("connection refused");
});

test("log_out_cancels_a_selection", async () => {
  streams = [[SESSION]];
  const live = await started();
  live.select("s", "t");
  live.end();
  await vi.advanceTimersByTimeAsync(400);
  expect(watch).toHaveBeenCalledTimes(1);
});

test("page_of_an_ended_login_waits_for_the_next_login", async () => {
  streams = [[SESSION], new ConnectError("the login has ended", Code.Unauthenticated)];
  const live = await started();
  me.mockResolvedValue(undefined);
  live.select("s", "t");
  await vi.advanceTimersByTimeAsync(60_000);
  expect(watch).toHaveBeenCalledTimes(2);
  expect([live.isExpired, live.isCurrent, live.model.sessions.size]).toEqual([true, false, 1]);

  me.mockResolvedValue({ supervisor: "s", role: "viewer", user: null, version: "1" });
  streams = [[SESSION]];
  otherTab.change("in");
  await vi.advanceTimersByTimeAsync(200);
  expect([live.isExpired, live.isCurrent, live.isOperator]).toEqual([false, true, false]);
});

test("end_of_older_login_does_not_end_the_page", async () => {
  streams = [[SESSION], new ConnectError("the login has ended", Code.Unauthenticated), [SESSION]];
  const live = await started();
  live.select("s", "t");
  await vi.advanceTimersByTimeAsync(2_000);
  expect([live.isExpired, live.isCurrent]).toEqual([false, true]);
});

test("log_out_in_another_tab_clears_the_page", async () => {
  streams = [[SESSION]];
  const live = await started();
  otherTab.change("out");
  expect([live.login, live.isExpired, live.model.sessions.size]).toEqual([null, false, 0]);
});
