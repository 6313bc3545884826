// Guards buttons in a list that changes by itself: after it has moved, the pointer may be at another entry.

import { notices } from "./notices.svelte";

/** After the list has moved by itself, its buttons do nothing for this long. */
const STEADY_MS = 1_000;

export class SteadyList {
  #ids: readonly string[] = [];
  #moved = -STEADY_MS;
  #isOwnMove = false;

  /** Notes the entries that are drawn now. */
  draw(ids: readonly string[]): void {
    const isShifted = this.#ids.some((id, place) => ids[place] !== id);
    if (isShifted && !this.#isOwnMove) this.#moved = performance.now();
    if (isShifted) this.#isOwnMove = false;
    this.#ids = ids;
  }

  /** Returns whether a button may act. The act itself may move the list. Otherwise tells the person to look again. */
  readonly begin = (): boolean => {
    if (performance.now() - this.#moved >= STEADY_MS) {
      this.#isOwnMove = true;
      return true;
    }
    notices.error("The list has moved. Look at the approval and decide again.");
    return false;
  };
}
