// Reads the messages of a watcher up to an expected one, and stores the events.

import { setTimeout } from "node:timers/promises";

import type { Event } from "../generated/troupe/supervisor/v1/event.js";
import type { WatchThreadsResponse } from "../generated/troupe/supervisor/v1/supervisor.js";
import { say } from "./say.js";
import { DEADLINE_MS } from "./troupe.js";
import type { Watcher } from "./watcher.js";

/** The only reader of a watcher. */
export class Reader {
  readonly events: Event[] = [];
  readonly cuts: bigint[] = [];
  readonly #news: AsyncGenerator<WatchThreadsResponse, void>;

  constructor(private readonly watcher: Watcher) {
    this.#news = watcher.news();
  }

  /** Reads up to the expected message. */
  async until(isLast: (message: WatchThreadsResponse) => boolean): Promise<void> {
    for (;;) {
      const { value: news } = await within(this.#news.next());
      if (!news) throw new Error("the watcher was closed");
      this.#keep(news);
      if (isLast(news)) return;
    }
  }

  /** Reads up to the expected event. */
  async untilEvent(isLast: (event: Event) => boolean): Promise<void> {
    await this.until(({ message }) => message?.$case === "event" && isLast(message.value));
  }

  /** Cuts the stream on purpose. */
  cut(): void {
    const position = this.events.at(-1)?.sequence ?? 0n;
    say("cut", `after ${position}`);
    this.cuts.push(position);
    this.watcher.cut();
  }

  #keep({ sequence, message }: WatchThreadsResponse): void {
    if (message?.$case === "event") {
      this.events.push(message.value);
      say(`${sequence}`.padStart(9), message.value.kind?.$case ?? "something new", message.value.threadId);
    } else if (message?.$case === "snapshot") {
      say("snapshot", `as of ${sequence}, threads: ${message.value.threads.length}`);
    }
  }
}

/** Returns the result of a promise, or fails after a maximum time. */
async function within<T>(answer: Promise<T>): Promise<T> {
  const came = new AbortController();
  const late = setTimeout(DEADLINE_MS, undefined, { signal: came.signal });
  try {
    return await Promise.race([answer, late.then(() => Promise.reject(new Error(`nothing came for ${DEADLINE_MS} ms`)))]);
  } finally {
    came.abort();
  }
}
