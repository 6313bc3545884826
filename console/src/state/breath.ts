// Lets the page draw and answer while many messages arrive.

/** The longest time in which only messages are applied. */
const MAX_BUSY_MS = 30;

export class Breath {
  #last = 0;

  /** Waits until the page has drawn, if it could not for too long. Timers of a hidden tab are slow, and it draws nothing. */
  async take(): Promise<void> {
    if (globalThis.document?.hidden || performance.now() - this.#last < MAX_BUSY_MS) return;
    await new Promise((resolve) => setTimeout(resolve));
    this.#last = performance.now();
  }
}
