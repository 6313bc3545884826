// Numbers, times and ids as short texts, in the forms of the command line.

import { durationMs, timestampDate, type Duration, type Timestamp } from "@bufbuild/protobuf/wkt";

import type { Budget, Usage } from "../model/messages";

export function tokensOf(usage: Usage | undefined): bigint {
  return usage ? usage.inputTokens + usage.outputTokens : 0n;
}

/** Formats a number of tokens: `950`, `12k`, `3.4M`. */
export function count(value: bigint): string {
  if (value < 1_000n) return value.toString();
  if (value < 1_000_000n) return `${value / 1_000n}k`;
  return `${value / 1_000_000n}.${(value % 1_000_000n) / 100_000n}M`;
}

/** Formats a share: `13%`, `<1%`. */
export function percent(part: bigint, whole: bigint): string {
  if (part === 0n || whole === 0n) return "0%";
  const value = (part * 100n) / whole;
  return value === 0n ? "<1%" : `${value}%`;
}

/** Formats an amount in millionths: `1.25`. */
export function money(micros: bigint): string {
  const fraction = (micros % 1_000_000n).toString().padStart(6, "0").replace(/0+$/, "");
  return `${micros / 1_000_000n}.${fraction.padEnd(2, "0")}`;
}

/** Formats a cost: `1.25`, `unknown`, or `1.25 + unknown` if only a part has a price. Empty before the first use. */
export function cost(usage: Usage | undefined): string {
  if (!usage || (tokensOf(usage) === 0n && usage.costMicros === 0n)) return "";
  if (usage.unpricedTokens === 0n) return money(usage.costMicros);
  return usage.costMicros === 0n ? "unknown" : `${money(usage.costMicros)} + unknown`;
}

/** Returns the used share of a budget in percent: the largest share of all limits. `undefined`: there is no budget. */
export function budgetUsed(budget: Budget | undefined, usage: Usage | undefined): number | undefined {
  if (!budget) return undefined;
  const share = (used: bigint, bound: bigint) => (bound > 0n ? Number((used * 100n) / bound) : 0);
  const wall = usage?.wallTime ? BigInt(durationMs(usage.wallTime)) : 0n;
  return Math.max(
    share(tokensOf(usage), budget.tokens),
    share(BigInt(usage?.turns ?? 0), BigInt(budget.turns)),
    share(usage?.costMicros ?? 0n, budget.costMicros),
    share(wall, budget.wallTime ? BigInt(durationMs(budget.wallTime)) : 0n),
  );
}

/** Formats a budget: `500k tokens, 20 turns`. */
export function budget(budget: Budget | undefined): string {
  if (!budget) return "";
  const parts = [
    budget.tokens ? `${count(budget.tokens)} tokens` : "",
    budget.turns ? `${budget.turns} turns` : "",
    budget.wallTime ? span(durationMs(budget.wallTime)) : "",
    budget.costMicros ? `cost ${money(budget.costMicros)}` : "",
  ];
  return parts.filter(Boolean).join(", ");
}

/** Returns the short form of an id: its last eight digits. */
export function shortId(id: string): string {
  return id.slice(-8);
}

/** Formats a number of milliseconds in its largest unit: `5s`, `3m`, `2h`, `4d`. */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

/** Formats the duration of a short operation: `120ms`, `2.5s`, `3m`. */
export function elapsed(duration: Duration): string {
  const ms = Math.round(durationMs(duration));
  if (ms < 1000) return `${ms}ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)}s` : span(ms);
}

/** Formats a remaining time with seconds: `9:05`. */
export function countdown(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

export function millis(time: Timestamp | undefined): number | undefined {
  return time && timestampDate(time).getTime();
}

/** Formats the time since `time`: `3m`. Empty if `time` is unknown. */
export function age(time: Timestamp | undefined, now: number): string {
  const then = millis(time);
  return then === undefined ? "" : span(now - then);
}

/** Formats a time of day in the browser's time zone: `12:03:44`. */
export function clock(time: Date | undefined): string {
  return time ? time.toTimeString().slice(0, 8) : "--:--:--";
}

/** Formats a date and a time of day in the browser's language and time zone. Empty if the time is unknown. */
export function dateTime(time: Date | undefined): string {
  return time?.toLocaleString() ?? "";
}

export function bytes(size: bigint | number): string {
  const value = Number(size);
  if (value < 1024) return `${value} B`;
  return value < 1024 * 1024 ? `${(value / 1024).toFixed(1)} KiB` : `${(value / 1024 / 1024).toFixed(1)} MiB`;
}

export function plural(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
