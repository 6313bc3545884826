// Lets the browser draw the page and handle input while many messages arrive.

/** Maximum time in which messages are applied without a pause. */
const MAX_BUSY_MS = 30;

export class Breath {
  #last = 0;

  /**
   * Waits for the browser's next task if the last pause is too long ago. Does not wait in a hidden tab, whose timers
   * are slow.
   */
  async take(): Promise<void> {
    if (globalThis.document?.hidden || performance.now() - this.#last < MAX_BUSY_MS) return;
    await new Promise((resolve) => setTimeout(resolve));
    this.#last = performance.now();
  }
}
