// Entries of a transcript as items: a tool call and its result are one item.

import { TranscriptKind, type TranscriptEntry } from "./messages";

export interface TranscriptItem {
  readonly entry: TranscriptEntry;
  /** The result of a call. `undefined`: the call has no result yet. */
  readonly result: TranscriptEntry | undefined;
}

export function transcriptItems(entries: readonly TranscriptEntry[]): TranscriptItem[] {
  const results = new Map<string, TranscriptEntry>();
  const calls = new Set<string>();
  for (const entry of entries) {
    if (entry.toolCall?.callId) calls.add(keyOf(entry, entry.toolCall.callId));
    if (entry.toolResult) results.set(keyOf(entry, entry.toolResult.callId), entry);
  }
  return entries
    .filter(({ kind, toolResult, ...entry }) => {
      const isResult = kind === TranscriptKind.TOOL_RESULT && toolResult;
      return !isResult || !calls.has(keyOf(entry, toolResult.callId));
    })
    .map((entry) => ({
      entry,
      result: entry.toolCall?.callId ? results.get(keyOf(entry, entry.toolCall.callId)) : undefined,
    }));
}

/**
 * Returns the key of a call. It contains the attempt, because a program may reuse the ids of calls in a new attempt.
 */
function keyOf({ generation }: { readonly generation: number }, callId: string): string {
  return `${generation}/${callId}`;
}
