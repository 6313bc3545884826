// Follows a session: a snapshot, then each event exactly once and in order, however often the stream is lost.

import { setTimeout } from "node:timers/promises";

import { ClientError, Status } from "nice-grpc";

import type { WatchThreadsResponse } from "../generated/troupe/supervisor/v1/supervisor.js";
import type { Troupe } from "./troupe.js";

const RETRY_MS = 200;

/** The events do not continue at the watcher's position. */
export class HistoryError extends Error {}

/**
 * A watcher of one session.
 *
 * The first stream begins with a snapshot, which contains the id of the log. Each later stream requests the events
 * after `position` in that log. The supervisor does not store the positions of watchers, so the client must. To resume
 * in another process, store both values.
 */
export class Watcher {
  /** The sequence of the last known event; undefined before the snapshot is complete. */
  position: bigint | undefined;
  /** The number of opened streams. */
  streams = 0;
  #logId = "";
  #stream = new AbortController();
  #isClosed = false;

  constructor(
    private readonly troupe: Troupe,
    private readonly sessionId: string,
  ) {}

  /** Cancels the stream at any point. The iteration continues with a new stream. */
  cut(): void {
    this.#stream.abort();
  }

  /** Ends the iteration. An open stream keeps the process alive. */
  close(): void {
    this.#isClosed = true;
    this.#stream.abort();
  }

  /**
   * Yields the parts of the snapshot and then every event after it, without end. An interrupted snapshot is repeated
   * completely. Telemetry, output and messages of unknown kinds are omitted.
   */
  async *news(): AsyncGenerator<WatchThreadsResponse, void> {
    while (!this.#isClosed) {
      try {
        for await (const message of this.#open()) {
          if (this.#take(message)) yield message;
        }
      } catch (error) {
        if (this.#stream.signal.aborted) continue;
        if (!isLost(error)) throw error;
        await setTimeout(RETRY_MS);
      }
    }
  }

  #open(): AsyncIterable<WatchThreadsResponse> {
    this.streams += 1;
    this.#stream = new AbortController();
    return this.troupe.supervisor.watchThreads(
      // With an undefined position, afterSequence is absent, which differs from 0.
      { sessionId: this.sessionId, afterSequence: this.position, logId: this.#logId },
      { signal: this.#stream.signal },
    );
  }

  /** Advances the position and returns whether the message is yielded. */
  #take({ sequence, message }: WatchThreadsResponse): boolean {
    switch (message?.$case) {
      case "event":
        if (this.position === undefined || sequence !== this.position + 1n) {
          throw new HistoryError(`event ${sequence} follows ${this.position}`);
        }
        this.position = sequence;
        return true;
      case "snapshot":
        // Only a complete snapshot sets the position.
        if (message.value.last) {
          this.#logId = message.value.logId;
          this.position = sequence;
        }
        return true;
      case "reset":
        throw new HistoryError(`another log: ${message.value.reason}`);
      default:
        return false;
    }
  }
}

/** Returns whether the stream was lost or the supervisor is unavailable. All other errors belong to the request. */
function isLost(error: unknown): boolean {
  return error instanceof ClientError && (error.code === Status.UNAVAILABLE || error.code === Status.CANCELLED);
}
