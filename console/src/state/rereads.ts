// Reads again the parts of the state whose new content is not in the events. There is one call at a time for each part:
// a change during the call causes another call. The calls complete the state of one stream and are cancelled when this
// stream ends.

import { Code } from "@connectrpc/connect";

import { callErrorOf } from "../api/errors";

const BACKOFF_MS = { first: 1_000, most: 30_000 };

export class Rereads {
  readonly #signal: AbortSignal;
  /** The parts that are being read, by name, and whether they have changed since the call began. */
  readonly #reading = new Map<string, { isStale: boolean }>();

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /** Reads a part and applies the answer. Retries until the part is read, does not exist, or the stream has ended. */
  async read<T>(name: string, call: () => Promise<T>, put: (answer: T) => void): Promise<void> {
    const present = this.#reading.get(name);
    if (present) {
      present.isStale = true;
      return;
    }
    const part = { isStale: true };
    this.#reading.set(name, part);
    let wait = BACKOFF_MS.first;
    while (part.isStale && !this.#signal.aborted) {
      part.isStale = false;
      try {
        const answer = await call();
        if (!this.#signal.aborted) put(answer);
      } catch (error) {
        // The part no longer exists. Its next event removes it from the state.
        if (callErrorOf(error).code === Code.NotFound) continue;
        part.isStale = true;
        await new Promise((resolve) => setTimeout(resolve, wait));
        wait = Math.min(wait * 2, BACKOFF_MS.most);
      }
    }
    this.#reading.delete(name);
  }
}
