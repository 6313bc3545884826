// Budgets that a person enters.

import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";

import { BudgetSchema, type Budget } from "./messages";

/** The texts of the fields. Empty: no limit. */
export interface BudgetFields {
  readonly tokens: string;
  readonly turns: string;
  readonly cost: string;
  readonly minutes: string;
}

/** Returns the budget. Throws an `Error` for a limit of 0, which the service would interpret as no limit. */
export function budgetOf({ tokens, turns, cost, minutes }: BudgetFields): Budget {
  const micros = Math.round(Number(cost) * 1e6);
  const ms = Math.round(Number(minutes) * 60_000);
  const isZero = (text: string, value: number) => text !== "" && !(value > 0);
  if (isZero(tokens, Number(tokens)) || isZero(turns, Number(turns)) || isZero(cost, micros) || isZero(minutes, ms)) {
    throw new Error("A limit must be more than 0. Leave a field empty for no limit.");
  }
  return create(BudgetSchema, {
    tokens: BigInt(tokens || 0),
    turns: Number(turns || 0),
    costMicros: BigInt(micros),
    ...(minutes && { wallTime: durationFromMs(ms) }),
  });
}
