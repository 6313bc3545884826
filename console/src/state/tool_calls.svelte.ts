// The tool calls of the visible lanes of a timeline.

import { SvelteMap } from "svelte/reactivity";

import { supervisor } from "../api/clients";
import { TranscriptKind, type Thread } from "../model/messages";
import { toolSpans, type ToolSpan } from "../model/timeline";

/** Number of the latest entries that are read from each transcript. */
const TAIL = 1_000;

export class ToolCalls {
  readonly #spans = new SvelteMap<string, readonly ToolSpan[]>();

  of(threadId: string): readonly ToolSpan[] {
    return this.#spans.get(threadId) ?? [];
  }

  async read({ sessionId, threadId }: Thread): Promise<void> {
    const kinds = [TranscriptKind.TOOL_CALL, TranscriptKind.TOOL_RESULT];
    try {
      const page = await supervisor.listTranscript({ sessionId, threadId, kinds, tail: TAIL, pageSize: TAIL });
      this.#spans.set(threadId, toolSpans(page.entries));
    } catch {
      // The error is ignored: the lane is shown without tool calls, and the thread's page shows the cause.
    }
  }
}
