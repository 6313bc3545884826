// The critical path of a session: the chain of spans that determined its total time.
//
// The path is found from the end backwards. Events do not record the reason of a wait, so the path assumes: a turn
// waits for the last descendant that ended during the turn, and an idle thread was woken by the last descendant that
// ended while the thread was idle. Any other turn was started by the nearest ancestor that was active, or else by the
// client, which waited for the last thread that ended.

import { merged, TURNS, type Span, type SpanKind } from "./timeline";
import { placesOf, type TreeRow } from "./tree";

/** A part of a span. Parts of a path do not overlap. */
export interface PathPart {
  readonly threadId: string;
  readonly kind: SpanKind;
  readonly start: number;
  readonly end: number;
}

type Piece = Omit<PathPart, "threadId">;

/** A period in which a thread was busy without a pause. The path search visits the periods by their ends. */
interface End {
  readonly place: number;
  readonly start: number;
  readonly end: number;
}

/** Returns the critical path, oldest part first. `tree` has the threads in tree order. */
export function criticalPath(tree: readonly TreeRow[], spans: ReadonlyMap<string, readonly Span[]>, now: number): PathPart[] {
  const { parents, ends: subtreeEnds } = placesOf(tree);
  const lanes = tree.map(({ thread }) => piecesOf(spans.get(thread.threadId) ?? [], now));
  const ends: End[] = lanes
    .flatMap((lane, place) => merged(lane).map((busy) => ({ place, ...busy })))
    .sort((a, b) => a.end - b.end || b.start - a.start);
  let time = ends.at(-1)?.end ?? now;
  // The index of the current thread. Undefined: the client.
  let place: number | undefined;

  // `time` only decreases, so pieces that begin after `time` and ends after `time` can be removed.
  function pieceAt(index: number): Piece | undefined {
    const lane = lanes[index] ?? [];
    while ((lane.at(-1)?.start ?? -Infinity) >= time) lane.pop();
    const last = lane.at(-1);
    return last && last.end >= time ? last : undefined;
  }
  function nearestActive(): { worker: number; piece: Piece } | undefined {
    for (let worker = place; worker !== undefined; worker = parents[worker]) {
      const piece = pieceAt(worker);
      if (piece) return { worker, piece };
    }
    return undefined;
  }
  function lastEnd(first: number, afterLast: number, after: number): End | undefined {
    while ((ends.at(-1)?.end ?? -Infinity) > time) ends.pop();
    if (first >= afterLast) return undefined;
    return ends.findLast((found) => found.end <= after || (found.place >= first && found.place < afterLast));
  }
  function lastDescendant(index: number, after: number): End | undefined {
    const found = lastEnd(index + 1, subtreeEnds[index] ?? 0, after);
    return found && found.end > after ? found : undefined;
  }

  const path: PathPart[] = [];
  for (;;) {
    const active = nearestActive();
    if (!active) {
      const woken = place === undefined ? undefined : lastDescendant(place, lanes[place]?.at(-1)?.end ?? -Infinity);
      const previous = woken ?? lastEnd(0, tree.length, -Infinity);
      if (!previous) break;
      ({ place, end: time } = previous);
      continue;
    }
    const { worker, piece } = active;
    const waited = TURNS.includes(piece.kind) ? lastDescendant(worker, piece.start) : undefined;
    const start = waited?.end ?? piece.start;
    const threadId = tree[worker]?.thread.threadId ?? "";
    if (start < time) path.push({ threadId, kind: piece.kind, start, end: time });
    time = start;
    place = waited?.place ?? worker;
  }
  return path.reverse();
}

/** Returns the parts of each thread, by the thread's id. */
export function partsByThread(path: readonly PathPart[]): Map<string, PathPart[]> {
  const parts = new Map<string, PathPart[]>();
  for (const part of path) {
    const own = parts.get(part.threadId);
    if (own) own.push(part);
    else parts.set(part.threadId, [part]);
  }
  return parts;
}

/** Returns the milliseconds of the parts. */
export function timeOf(parts: readonly PathPart[]): number {
  return parts.reduce((sum, { start, end }) => sum + end - start, 0);
}

/** Returns the spans as pieces that do not overlap, oldest first. A wait for an approval interrupts a turn. */
function piecesOf(spans: readonly Span[], now: number): Piece[] {
  const closed = spans.map(({ kind, start, end = now }) => ({ kind, start, end })).filter(({ start, end }) => start < end);
  const waits = merged(closed.filter(({ kind }) => kind === "approval"));
  const pieces: Piece[] = waits.map((wait) => ({ kind: "approval", ...wait }));
  for (const { kind, start, end } of closed) {
    // A stall is part of a turn, and waits for approvals were added before.
    if (kind === "approval" || kind === "stalled") continue;
    let from = start;
    for (const wait of waits) {
      if (wait.end <= from) continue;
      if (wait.start >= end) break;
      if (from < wait.start) pieces.push({ kind, start: from, end: wait.start });
      from = wait.end;
    }
    if (from < end) pieces.push({ kind, start: from, end });
  }
  return pieces.sort((a, b) => a.start - b.start);
}
