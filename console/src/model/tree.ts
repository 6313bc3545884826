// The tree of a session's threads as rows.

import type { Thread } from "./messages";

export interface TreeRow {
  readonly thread: Thread;
  /** 1 for a thread at the top. */
  readonly level: number;
  /** The position among the threads with the same parent, starting at 1, and the number of these threads. */
  readonly position: number;
  readonly siblings: number;
  readonly hasChildren: boolean;
  readonly isFolded: boolean;
}

/**
 * Returns the rows of threads in spawn order. A thread whose parent is not among them is at the top. The descendants of
 * folded threads have no row.
 */
export function treeRows(threads: Iterable<Thread>, folded: ReadonlySet<string>): TreeRow[] {
  const { tops, children } = childrenOf(threads);
  const rows: TreeRow[] = [];
  // An explicit stack: a tree with a depth of 10,000 must not overflow the call stack.
  const stack: { list: readonly Thread[]; next: number }[] = [{ list: tops, next: 0 }];
  for (let top = stack.at(-1); top; top = stack.at(-1)) {
    const thread = top.list[top.next];
    if (!thread) {
      stack.pop();
      continue;
    }
    top.next += 1;
    const own = children.get(thread.threadId) ?? [];
    const isFolded = own.length > 0 && folded.has(thread.threadId);
    rows.push({
      thread,
      level: stack.length,
      position: top.next,
      siblings: top.list.length,
      hasChildren: own.length > 0,
      isFolded,
    });
    if (own.length > 0 && !isFolded) stack.push({ list: own, next: 0 });
  }
  return rows;
}

/** Returns a thread's descendants, without the thread. */
export function descendantsOf(threads: Iterable<Thread>, threadId: string): Thread[] {
  const { children } = childrenOf(threads);
  const found: Thread[] = [];
  const pending = [threadId];
  for (let id = pending.pop(); id !== undefined; id = pending.pop()) {
    for (const child of children.get(id) ?? []) {
      found.push(child);
      pending.push(child.threadId);
    }
  }
  return found;
}

/** Returns for each row the index of its parent, and the index after its last descendant. */
export function placesOf(tree: readonly TreeRow[]): { parents: (number | undefined)[]; ends: number[] } {
  const parents: (number | undefined)[] = [];
  const ends = tree.map(() => tree.length);
  const open: number[] = [];
  for (const [place, { level }] of tree.entries()) {
    while (open.length >= level) ends[open.pop() ?? 0] = place;
    parents.push(open.at(-1));
    open.push(place);
  }
  return { parents, ends };
}

function childrenOf(threads: Iterable<Thread>): { tops: Thread[]; children: Map<string, Thread[]> } {
  // Sorted by id, which is the order of creation, because closed threads may have been read later than open ones.
  const list = [...threads].sort((a, b) => (a.threadId < b.threadId ? -1 : 1));
  const known = new Set(list.map(({ threadId }) => threadId));
  const tops: Thread[] = [];
  const children = new Map<string, Thread[]>();
  for (const thread of list) {
    const { parentThreadId } = thread;
    if (!known.has(parentThreadId) || parentThreadId === thread.threadId) {
      tops.push(thread);
      continue;
    }
    const siblings = children.get(parentThreadId);
    if (siblings) siblings.push(thread);
    else children.set(parentThreadId, [thread]);
  }
  return { tops, children };
}
