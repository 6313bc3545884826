// Follows a session: a snapshot, then each event exactly once and in order, however often the stream is lost.

import { setTimeout } from "node:timers/promises";

import { ClientError, Status } from "nice-grpc";

import type { WatchThreadsResponse } from "../generated/troupe/supervisor/v1/supervisor.js";
import type { Troupe } from "./troupe.js";

const RETRY_MS = 200;

/** The events do not go on where they stopped. */
export class HistoryError extends Error {}

/**
 * One follower of one session.
 *
 * The first stream begins with a snapshot, which names the log. Every later one asks for what came after `position`, in that
 * log: the supervisor keeps no memory of its watchers, so the position is the client's to keep. A program that outlives its
 * process would write both down.
 */
export class Watcher {
  /** The last event that is known; undefined before the snapshot is complete. */
  position: bigint | undefined;
  /** How often a stream was opened. */
  streams = 0;
  #logId = "";
  #stream = new AbortController();
  #isClosed = false;

  constructor(
    private readonly troupe: Troupe,
    private readonly sessionId: string,
  ) {}

  /** Cancels the stream, whatever is under way on it. The iteration goes on with a new one. */
  cut(): void {
    this.#stream.abort();
  }

  /** Ends the iteration; a stream that is left open keeps the process alive. */
  close(): void {
    this.#isClosed = true;
    this.#stream.abort();
  }

  /**
   * The parts of the snapshot, then every event after it; it does not end by itself. A snapshot that was cut off comes
   * again, whole. Telemetry, output and whatever is newer than this client are left out.
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
      // An undefined position leaves afterSequence absent, which is not the same as 0.
      { sessionId: this.sessionId, afterSequence: this.position, logId: this.#logId },
      { signal: this.#stream.signal },
    );
  }

  /** Moves the position on, and answers whether the message is news. */
  #take({ sequence, message }: WatchThreadsResponse): boolean {
    switch (message?.$case) {
      case "event":
        if (this.position === undefined || sequence !== this.position + 1n) {
          throw new HistoryError(`event ${sequence} follows ${this.position}`);
        }
        this.position = sequence;
        return true;
      case "snapshot":
        // Only a whole one is a position.
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

/** Whether the stream or the supervisor is gone for the moment; everything else is an answer. */
function isLost(error: unknown): boolean {
  return error instanceof ClientError && (error.code === Status.UNAVAILABLE || error.code === Status.CANCELLED);
}
