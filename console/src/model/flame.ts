// The tokens of a session as an icicle chart: a cell for each thread, as wide as the tokens of the thread and its
// descendants, below the cell of its parent.

import type { Thread } from "./messages";
import { placesOf, type TreeRow } from "./tree";
import { tokensOf } from "../text/format";

export interface TokenRow {
  readonly thread: Thread;
  /** 1 for a thread at the top. */
  readonly level: number;
  readonly own: bigint;
  /** The tokens of the thread and its descendants. */
  readonly total: bigint;
  /** The index of the parent's row. Undefined: the thread is at the top. */
  readonly parent: number | undefined;
  readonly place: number;
  /** The index after the row of the last descendant. */
  readonly end: number;
}

export interface FlameCell {
  readonly key: string;
  /** 1 for the first level of the chart. */
  readonly level: number;
  /** The thread. Undefined: the cell stands for several threads. */
  readonly row: TokenRow | undefined;
  /** The number of threads that the cell stands for, without their descendants. */
  readonly threads: number;
  readonly total: bigint;
  /** The left edge and the width, as shares of the chart's width. */
  readonly x: number;
  readonly width: number;
}

/** Returns the tokens of each thread, in tree order. */
export function tokenRows(tree: readonly TreeRow[]): TokenRow[] {
  const { parents, ends } = placesOf(tree);
  const totals = tree.map(({ thread }) => tokensOf(thread.usage));
  for (let place = tree.length - 1; place >= 0; place -= 1) {
    const parent = parents[place];
    if (parent !== undefined) totals[parent] = (totals[parent] ?? 0n) + (totals[place] ?? 0n);
  }
  return tree.map(({ thread, level }, place) => ({
    thread,
    level,
    own: tokensOf(thread.usage),
    total: totals[place] ?? 0n,
    parent: parents[place],
    place,
    end: ends[place] ?? place + 1,
  }));
}

/** Returns the tokens of all threads. */
export function totalOf(rows: readonly TokenRow[]): bigint {
  return rows.reduce((sum, { own }) => sum + own, 0n);
}

/**
 * Returns the cells by level; below each thread, the widest cell comes first. With `top`, the thread with that id and
 * its ancestors have the full width. Siblings narrower than `least` share one last cell, if this cell is at least as
 * wide as `least`.
 */
export function flame(rows: readonly TokenRow[], top: string, least: number): FlameCell[][] {
  const levels: FlameCell[][] = [];
  const zoomed = rows.find(({ thread }) => thread.threadId === top);
  let level: FlameCell[];
  if (zoomed) {
    for (let row: TokenRow | undefined = zoomed; row; row = rowAt(rows, row.parent)) levels.unshift([cellOf(row, 0, 1)]);
    level = levels.pop() ?? [];
  } else {
    level = cellsOf(rowsBetween(rows, 0, rows.length), { key: "", level: 0, total: totalOf(rows), x: 0, width: 1 }, least);
  }
  while (level.length > 0) {
    levels.push(level);
    level = level.flatMap((cell) => (cell.row ? cellsOf(rowsBetween(rows, cell.row.place + 1, cell.row.end), cell, least) : []));
  }
  return levels;
}

/** Returns the cells of siblings within the cell of their parent. */
function cellsOf(siblings: TokenRow[], parent: Omit<FlameCell, "row" | "threads">, least: number): FlameCell[] {
  const sorted = siblings.filter(({ total }) => total > 0n).sort((a, b) => Number(b.total - a.total));
  const scale = parent.width / Number(parent.total);
  const cells: FlameCell[] = [];
  let { x } = parent;
  let rest = sorted.reduce((sum, { total }) => sum + total, 0n);
  for (const row of sorted) {
    const width = Number(row.total) * scale;
    if (width < least) break;
    cells.push(cellOf(row, x, width));
    x += width;
    rest -= row.total;
  }
  const threads = sorted.length - cells.length;
  const width = Number(rest) * scale;
  if (threads > 0 && width >= least) {
    cells.push({ key: `${parent.key}+`, level: parent.level + 1, row: undefined, threads, total: rest, x, width });
  }
  return cells;
}

function cellOf(row: TokenRow, x: number, width: number): FlameCell {
  return { key: row.thread.threadId, level: row.level, row, threads: 1, total: row.total, x, width };
}

/** Returns the rows from index `first` to before index `end`, without their descendants. */
function rowsBetween(rows: readonly TokenRow[], first: number, end: number): TokenRow[] {
  const found: TokenRow[] = [];
  for (let row = rows[first]; row && row.place < end; row = rows[row.end]) found.push(row);
  return found;
}

function rowAt(rows: readonly TokenRow[], place: number | undefined): TokenRow | undefined {
  return place === undefined ? undefined : rows[place];
}
