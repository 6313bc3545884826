// Usage of threads, summed by a property.

import type { Followed } from "./model";
import { isClosed } from "./model";
import type { Thread } from "./messages";
import { tokensOf } from "../text/format";

export interface UsageRow {
  readonly name: string;
  readonly threads: number;
  readonly tokens: bigint;
  readonly costMicros: bigint;
  readonly unpricedTokens: bigint;
}

/** Returns the usage of the known threads of open sessions by a property, the largest first. */
export function usageBy(sessions: Iterable<Followed>, nameOf: (thread: Thread) => string): UsageRow[] {
  const rows = new Map<string, UsageRow>();
  for (const followed of sessions) {
    if (isClosed(followed)) continue;
    for (const thread of followed.view.threads.values()) {
      const name = nameOf(thread);
      const row = rows.get(name) ?? { name, threads: 0, tokens: 0n, costMicros: 0n, unpricedTokens: 0n };
      rows.set(name, {
        name,
        threads: row.threads + 1,
        tokens: row.tokens + tokensOf(thread.usage),
        costMicros: row.costMicros + (thread.usage?.costMicros ?? 0n),
        unpricedTokens: row.unpricedTokens + (thread.usage?.unpricedTokens ?? 0n),
      });
    }
  }
  return [...rows.values()].sort((a, b) => Number(b.tokens - a.tokens) || a.name.localeCompare(b.name));
}
