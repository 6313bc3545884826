// Guards buttons in a list that changes by itself: after the list has moved, the pointer may be over another entry.

import { notices } from "./notices.svelte";

/** Time for which the buttons do nothing after the list has moved by itself. */
const STEADY_MS = 1_000;
/** Time for which the buttons do nothing after a decision, so that a double click does not decide the next entry. */
const DOUBLE_CLICK_MS = 500;

export class SteadyList {
  #ids: readonly string[] = [];
  #moved = -STEADY_MS;
  #decided = -DOUBLE_CLICK_MS;
  /** The entries that a button is about to remove. */
  #leaving: readonly string[] = [];

  /** Stores the entries that are drawn now, and detects whether the list has moved by itself. */
  draw(ids: readonly string[]): void {
    const expected = this.#ids.filter((id) => !this.#leaving.includes(id) || ids.includes(id));
    if (expected.some((id, place) => ids[place] !== id)) this.#moved = performance.now();
    this.#leaving = [];
    this.#ids = ids;
  }

  /**
   * Returns whether a button that removes these entries may act. If the list has moved, asks the person to look again.
   */
  readonly begin = (leaving: readonly string[]): boolean => {
    const now = performance.now();
    if (now - this.#moved < STEADY_MS) {
      notices.error("The list has moved. Look at the approval and decide again.");
      return false;
    }
    if (now - this.#decided < DOUBLE_CLICK_MS) return false;
    this.#decided = now;
    this.#leaving = leaving;
    return true;
  };
}
