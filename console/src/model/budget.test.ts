import { expect, test } from "vitest";

import { budgetOf } from "./budget";

const EMPTY = { tokens: "", turns: "", cost: "", minutes: "" };

test("budget_has_the_entered_limits", () => {
  const budget = budgetOf({ tokens: "500000", turns: "20", cost: "1.25", minutes: "0.5" });
  expect(budget).toMatchObject({ tokens: 500_000n, turns: 20, costMicros: 1_250_000n, wallTime: { seconds: 30n } });
});

test("empty_field_is_no_limit", () => {
  expect(budgetOf(EMPTY)).toMatchObject({ tokens: 0n, turns: 0, costMicros: 0n });
  expect(budgetOf(EMPTY).wallTime).toBeUndefined();
});

test.each([{ tokens: "0" }, { turns: "00" }, { cost: "0.0000001" }, { minutes: "0" }])("limit %j is rejected", (field) => {
  expect(() => budgetOf({ ...EMPTY, ...field })).toThrow("more than 0");
});
