// The spans of a session's threads over time, computed from the session's events.

import { millis } from "../text/format";
import {
  ApprovalKind,
  ConditionKind,
  StatusKind,
  ToolVerdict,
  TranscriptKind,
  TurnOutcome,
  type Event,
  type TranscriptEntry,
} from "./messages";
import { transcriptItems } from "./transcript";

export type SpanKind = "queued" | "starting" | "running" | "completed" | "errored" | "interrupted" | "approval" | "stalled";

/** The kinds of turns: a running turn, and the outcomes of ended turns. */
export const TURNS: readonly SpanKind[] = ["running", "completed", "errored", "interrupted"];

/** A part of a lane. A span without an end continues. */
export interface Span {
  readonly kind: SpanKind;
  readonly start: number;
  readonly end: number | undefined;
}

/** Returns the spans of each thread, by the thread's id. */
export function lanes(events: readonly Event[]): Map<string, Span[]> {
  const building = new Map<string, LaneBuilder>();
  for (const event of events) {
    const time = millis(event.time);
    if (!event.threadId || time === undefined) continue;
    let lane = building.get(event.threadId);
    if (!lane) building.set(event.threadId, (lane = new LaneBuilder()));
    lane.apply(event, time);
  }
  return new Map([...building].map(([id, lane]) => [id, lane.spans()]));
}

class LaneBuilder {
  readonly #done: Span[] = [];
  readonly #open = new Map<string, { kind: SpanKind; start: number }>();

  apply({ kind }: Event, time: number): void {
    switch (kind.case) {
      case "threadSpawned":
        if (kind.value.firstStatus === StatusKind.QUEUED) this.#begin("turn", "queued", time);
        if (kind.value.firstStatus === StatusKind.PENDING_INIT) this.#begin("turn", "starting", time);
        break;
      case "inputQueued":
        if (!this.#open.has("turn")) this.#begin("turn", "queued", time);
        break;
      case "threadAdmitted":
        this.#begin("turn", "starting", time);
        break;
      case "turnStarted":
        this.#begin("turn", "running", time);
        break;
      case "turnEnded":
        this.#end("turn", time, outcomeKind(kind.value.outcome));
        // The end of a turn ends the condition STALLED without a separate event.
        this.#end("stalled", time);
        break;
      case "approvalRequested":
        this.#begin(kind.value.approvalId, "approval", time);
        if (kind.value.kind === ApprovalKind.SPAWN) this.#open.delete("turn");
        break;
      case "approvalResolved":
        this.#end(kind.value.approvalId, time);
        break;
      case "conditionChanged":
        if (kind.value.kind !== ConditionKind.STALLED) break;
        if (kind.value.active) this.#begin("stalled", "stalled", time);
        else this.#end("stalled", time);
        break;
      case "threadClosed":
        for (const key of [...this.#open.keys()]) this.#end(key, time, key === "turn" ? "interrupted" : undefined);
        break;
    }
  }

  /** Returns the spans in the order of their starts. */
  spans(): Span[] {
    const open = [...this.#open.values()].map((span) => ({ ...span, end: undefined }));
    return [...this.#done, ...open].sort((a, b) => a.start - b.start);
  }

  #begin(key: string, kind: SpanKind, time: number): void {
    this.#end(key, time);
    this.#open.set(key, { kind, start: time });
  }

  /** Ends a span. A running turn gets the kind of its outcome. */
  #end(key: string, end: number, outcome?: SpanKind): void {
    const span = this.#open.get(key);
    if (!span) return;
    this.#open.delete(key);
    this.#done.push({ kind: span.kind === "running" && outcome ? outcome : span.kind, start: span.start, end });
  }
}

/** A tool call. A call without an end has no result yet. */
export interface ToolSpan {
  readonly tool: string;
  readonly start: number;
  readonly end: number | undefined;
}

/** Returns the tool calls of a transcript that have a time. */
export function toolSpans(entries: readonly TranscriptEntry[]): ToolSpan[] {
  return transcriptItems(entries).flatMap(({ entry, result }) => {
    const start = millis(entry.time);
    if (entry.kind !== TranscriptKind.TOOL_CALL || !entry.toolCall || start === undefined) return [];
    // Calls without an id and denied calls have no result.
    const { callId, verdict } = entry.toolCall;
    const end = callId && verdict !== ToolVerdict.DENIED ? millis(result?.time) : start;
    return { tool: entry.toolCall.tool, start, end };
  });
}

/** Returns the end of a tool call, or `undefined` if the call continues. A call without a result ends with its turn. */
export function callEnd({ start, end }: ToolSpan, spans: readonly Span[]): number | undefined {
  return end ?? spans.find((span) => TURNS.includes(span.kind) && (span.end ?? Infinity) >= start)?.end;
}

function outcomeKind(outcome: TurnOutcome): SpanKind {
  switch (outcome) {
    case TurnOutcome.COMPLETED:
      return "completed";
    case TurnOutcome.ERRORED:
      return "errored";
    default:
      return "interrupted";
  }
}

/** A period without any span, which is drawn with a fixed width. */
export interface Gap {
  readonly start: number;
  readonly end: number;
}

/** Maps times to positions from 0 to 1. Long gaps are compressed. */
export interface Scale {
  readonly start: number;
  readonly end: number;
  readonly gaps: readonly Gap[];
  readonly place: (time: number) => number;
}

/** The share of the width that a compressed gap takes. */
const GAP_SHARE = 0.03;
/** A gap is compressed if it is longer than this share of the time in spans. */
const LONG_GAP_SHARE = 0.1;

export function scaleOf(spans: readonly Span[], now: number): Scale {
  const busy = merged(spans.map(({ start, end }) => ({ start, end: end ?? now })));
  const start = busy[0]?.start ?? now;
  const end = Math.max(busy.at(-1)?.end ?? now, start + 1);
  const work = Math.max(1, busy.reduce((sum, part) => sum + part.end - part.start, 0));
  const gaps = busy
    .slice(1)
    .map((part, index) => ({ start: busy[index]?.end ?? part.start, end: part.start }))
    .filter((gap) => gap.end - gap.start > work * LONG_GAP_SHARE);
  const shown = end - start - gaps.reduce((sum, gap) => sum + gap.end - gap.start, 0);
  const gapWidth = shown * GAP_SHARE;
  const total = shown + gaps.length * gapWidth;
  const place = (time: number) => {
    const bounded = Math.min(Math.max(time, start), end);
    let width = bounded - start;
    for (const gap of gaps) {
      if (bounded <= gap.start) break;
      const inside = Math.min(bounded, gap.end) - gap.start;
      width += (inside / (gap.end - gap.start)) * gapWidth - inside;
    }
    return width / total;
  };
  return { start, end, gaps, place };
}

/** Returns the periods that the parts cover, without overlaps, oldest first. */
export function merged(parts: readonly Gap[]): { start: number; end: number }[] {
  const result: { start: number; end: number }[] = [];
  for (const { start, end } of parts.toSorted((a, b) => a.start - b.start)) {
    const last = result.at(-1);
    if (last && start <= last.end) last.end = Math.max(last.end, end);
    else result.push({ start, end });
  }
  return result;
}

/** Returns the milliseconds that a lane spent in spans of these kinds. */
export function timeIn(spans: readonly Span[], kinds: readonly SpanKind[], now: number): number {
  return spans.filter(({ kind }) => kinds.includes(kind)).reduce((sum, { start, end }) => sum + (end ?? now) - start, 0);
}
