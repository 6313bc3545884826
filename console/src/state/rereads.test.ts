import { Code } from "@connectrpc/connect";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { CallError } from "../api/errors";
import { Rereads } from "./rereads";

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

function errorWith(code: Code): CallError {
  return new CallError("no", { code });
}

test("changes_during_a_call_cause_one_more_call", async () => {
  const rereads = new Rereads(new AbortController().signal);
  let answer: (value: number) => void = () => {};
  const call = vi.fn(() => new Promise<number>((resolve) => (answer = resolve)));
  const put = vi.fn();
  const reading = rereads.read("a", call, put);
  void rereads.read("a", call, put);
  void rereads.read("a", call, put);
  expect(call).toHaveBeenCalledTimes(1);
  answer(1);
  await vi.advanceTimersByTimeAsync(0);
  answer(2);
  await reading;
  expect(call).toHaveBeenCalledTimes(2);
  expect(put.mock.calls).toEqual([[1], [2]]);
});

test("failed_call_is_retried", async () => {
  const call = vi.fn().mockRejectedValueOnce(errorWith(Code.Unavailable)).mockResolvedValue(1);
  const put = vi.fn();
  void new Rereads(new AbortController().signal).read("a", call, put);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(put).toHaveBeenCalledExactlyOnceWith(1);
});

test("missing_part_is_not_retried", async () => {
  const call = vi.fn().mockRejectedValue(errorWith(Code.NotFound));
  await new Rereads(new AbortController().signal).read("a", call, vi.fn());
  expect(call).toHaveBeenCalledTimes(1);
});

test("answer_after_the_end_of_the_stream_is_ignored", async () => {
  const abort = new AbortController();
  const put = vi.fn();
  const reading = new Rereads(abort.signal).read("a", async () => 1, put);
  abort.abort();
  await reading;
  expect(put).not.toHaveBeenCalled();
});
