// The latest events of a session, read in parts: first those that exist, then new ones when the session has changed. Each
// part ends, so that the tab keeps one open stream.

import { supervisor } from "../api/clients";
import { callErrorOf } from "../api/errors";
import type { Event } from "../model/messages";

/** Events that are kept. */
const MAX_EVENTS = 20_000;

export class EventLog {
  readonly sessionId: string;
  /** Oldest first. */
  events: readonly Event[] = $state.raw([]);
  isLoaded = $state(false);
  /** Whether the session has earlier events. */
  isCut = $state(false);
  error = $state("");
  #position: bigint | undefined;
  #isReading = false;
  /** Whether the session changed while its events were read. */
  #isStale = false;

  constructor(sessionId: string) {
    this.sessionId = sessionId;
  }

  /** Reads the events up to the newest one. */
  async read(): Promise<void> {
    this.#isStale = true;
    if (this.#isReading) return;
    this.#isReading = true;
    while (this.#isStale) {
      this.#isStale = false;
      await this.#readNew();
    }
    this.#isReading = false;
  }

  async #readNew(): Promise<void> {
    try {
      const { session } = await supervisor.getSession({ sessionId: this.sessionId });
      const head = session?.sequence ?? 0n;
      this.#position ??= BigInt(Math.max(0, Number(head) - MAX_EVENTS));
      await this.#readTo(head);
      this.error = "";
    } catch (error) {
      this.error = callErrorOf(error).message;
    } finally {
      this.isLoaded = true;
    }
  }

  async #readTo(head: bigint): Promise<void> {
    try {
      await this.#append(head);
    } catch (error) {
      const { reason, metadata } = callErrorOf(error);
      if (reason !== "HISTORY_COMPACTED" || !metadata["oldest"]) throw error;
      this.#position = BigInt(metadata["oldest"]);
      await this.#append(head);
    }
    this.isCut = (this.events[0]?.sequence ?? 1n) > 1n;
  }

  async #append(head: bigint): Promise<void> {
    const afterSequence = this.#position ?? 0n;
    if (afterSequence >= head) return;
    const events: Event[] = [];
    const abort = new AbortController();
    const request = { sessionId: this.sessionId, afterSequence };
    for await (const { message, sequence } of supervisor.watchThreads(request, { signal: abort.signal })) {
      if (message.case === "event") events.push(message.value);
      if (sequence >= head) break;
    }
    abort.abort();
    this.events = [...this.events, ...events].slice(-MAX_EVENTS);
    this.#position = head;
  }
}
