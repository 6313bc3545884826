// The latest events of a session. The newest events are read first, then the earlier ones, and new events when the
// session has changed. Each read ends at the newest event, so that the tab has only one open stream.

import { supervisor } from "../api/clients";
import { callErrorOf } from "../api/errors";
import type { Event } from "../model/messages";
import { Breath } from "./breath";

/** Maximum number of stored events. */
const MAX_EVENTS = 20_000;
/** Number of events of the first read. */
const FIRST_EVENTS = 500;

export class EventLog {
  readonly sessionId: string;
  /** Oldest first. */
  events: readonly Event[] = $state.raw([]);
  isLoaded = $state(false);
  /** Whether the session has earlier events that are not stored here. */
  isCut = $state(false);
  error = $state("");
  readonly #breath = new Breath();
  /** The start of the range of events that were read. */
  #after = 0n;
  /** The end of the range of events that were read. */
  #upTo: bigint | undefined;
  /** The position after which events are to be read. */
  #oldest = 0n;
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
      const oldest = before(head, MAX_EVENTS);
      // If more events than the maximum were missed, the log starts again.
      if (this.#upTo === undefined || this.#upTo < oldest) {
        this.#oldest = oldest;
        this.#after = before(head, FIRST_EVENTS);
        this.#upTo = this.#after;
        this.events = [];
      }
      if (this.#upTo < head) {
        const events = await this.#readBetween(this.#upTo, head);
        this.#put([...this.events, ...events]);
        this.#upTo = head;
      }
      if (this.#oldest < this.#after) {
        const events = await this.#readBetween(this.#oldest, this.#after);
        this.#put([...events, ...this.events]);
        this.#after = this.#oldest;
      }
      this.error = "";
    } catch (error) {
      this.error = callErrorOf(error).message;
    } finally {
      this.isLoaded = true;
    }
  }

  #put(events: Event[]): void {
    this.events = events.slice(-MAX_EVENTS);
    this.isCut = (this.events[0]?.sequence ?? 1n) > 1n;
    this.isLoaded = true;
  }

  /** Reads the events after one position and up to another one. Events that the server has removed are left out. */
  async #readBetween(after: bigint, upTo: bigint): Promise<Event[]> {
    try {
      return await this.#stream(after, upTo);
    } catch (error) {
      const { reason, metadata } = callErrorOf(error);
      if (reason !== "HISTORY_COMPACTED" || !metadata["oldest"]) throw error;
      const oldest = BigInt(metadata["oldest"]);
      return oldest < upTo ? await this.#stream(oldest, upTo) : [];
    }
  }

  async #stream(afterSequence: bigint, upTo: bigint): Promise<Event[]> {
    const events: Event[] = [];
    const abort = new AbortController();
    const request = { sessionId: this.sessionId, afterSequence };
    for await (const { message, sequence } of supervisor.watchThreads(request, { signal: abort.signal })) {
      if (message.case === "event") events.push(message.value);
      if (sequence >= upTo) break;
      await this.#breath.take();
    }
    abort.abort();
    return events;
  }
}

/** Returns the position before the latest events. */
function before(head: bigint, events: number): bigint {
  return head > BigInt(events) ? head - BigInt(events) : 0n;
}
