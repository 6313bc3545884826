import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";

import { Filter } from "./filter";
import { thread } from "./fixture";
import { ConditionKind, SessionSchema, StatusKind } from "./messages";

const session = create(SessionSchema, { labels: { team: "Core" } });
const threads = [
  thread("1", "", "default", StatusKind.COMPLETED),
  thread("2", "1", "worker", StatusKind.RUNNING, { alias: "Ann", label: "Fix the parser", model: "gpt-5" }),
  thread("3", "2", "reviewer", StatusKind.RUNNING, {
    runnerId: "local",
    conditions: [{ kind: ConditionKind.BUDGET_EXHAUSTED }],
  }),
  thread("4", "1", "worker", StatusKind.ERRORED),
];

function selected(text: string, ancestors = false): string {
  const ids = new Filter(text).selected(session, threads, ancestors);
  return threads.map(({ threadId }) => threadId).filter((id) => ids.has(id)).join("");
}

test.each([
  ["", "1234"],
  ["s:running", "23"],
  ["s:RUN,err", "234"],
  ["r:work", "24"],
  ["r:root", "1"],
  ["a:ann", "2"],
  ["m:gpt", "2"],
  ["on:local", "3"],
  ["label:parser", "2"],
  ["label:team=core", "1234"],
  ["needs:me", "34"],
  ["over:budget", "3"],
  ["s:running -over:budget", "2"],
  ["-r:worker", "13"],
  ['"the parser"', "2"],
  ['label:"fix the"', "2"],
  ["nothing", ""],
])("filter %s selects %s", (filter, expected) => {
  expect(selected(filter)).toBe(expected);
});

test("ancestors_of_matches_are_selected", () => {
  expect(selected("over:budget", true)).toBe("123");
});

test.each([
  ["x:y", 'unknown key "x"; the keys are s, r, a, m, on, label, needs, over'],
  ["s:zzz", 'unknown status "zzz"; the statuses are queued, '],
  ["r:", '"r:" needs a value'],
  ["needs:you", "use needs:me"],
  ["over:there", "use over:budget"],
  ["-", "a term is empty"],
  ['"open', 'a double quote is not closed in "open'],
])("bad filter %s is rejected", (filter, expected) => {
  expect(() => new Filter(filter)).toThrow(expected);
});
