// Counts of a session's threads by status.

import type { StatusKind } from "./messages";
import type { Followed } from "./model";
import { statusOf } from "./thread";

/** Returns the counts of the threads. Until the view is complete, returns the counts of the session's roll-up. */
export function statusCounts({ info, view }: Followed): Map<StatusKind, number> {
  if (!view.isComplete) return new Map(info.rollUp?.threads.map(({ kind, count }) => [kind, count]));
  const counts = new Map<StatusKind, number>();
  for (const thread of view.threads.values()) {
    const kind = statusOf(thread);
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return counts;
}
