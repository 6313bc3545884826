// The state of the tab: the login, the stream, and the model that is folded from the stream.
//
// Messages arrive faster than a person can read. The collections of the model change in place, and `version` changes at
// most every 100 ms. Code that reads the model also reads `version`, so that the page is drawn again with each version.

import { putReadGroup, putReadThread } from "@troupe/client/session_view";

import { consoleService, supervisor, whenLoginEnds } from "../api/clients";
import { forgetContents } from "../api/content";
import { callErrorOf } from "../api/errors";
import { me, onOtherTab, type Me } from "../api/login";
import type { WatchResponse } from "../gen/troupe/console/v1/console_pb";
import type { TranscriptEntry } from "../model/messages";
import { emptyModel, fold, isComplete, type Model } from "../model/model";
import { keepAddress, takeAddress } from "./address";
import { Breath } from "./breath";
import { Rereads } from "./rereads";

const DRAW_MS = 100;
/** Delay before the stream for a selection is opened. A selection that changes within this time opens no stream. */
const REST_MS = 150;
const TRANSCRIPT_TAIL = 200;
/** Maximum number of stored entries of the transcript. */
const MAX_ENTRIES = 2_000;
/** Silence after which a stream counts as lost. The server sends an empty message at least every 15 s. */
const SILENCE_MS = 45_000;
/** Loading time of a new stream after which the page is shown as not current. */
const LOAD_MS = 3_000;
/** Time after which a hidden tab ends its stream, because a browser opens at most six connections to a server. */
const HIDDEN_MS = 60_000;
const BACKOFF_MS = { first: 500, most: 10_000 };

export interface Transcript {
  readonly sessionId: string;
  readonly threadId: string;
  entries: TranscriptEntry[];
  isClosed: boolean;
  isLoaded: boolean;
  error: string;
}

class Live {
  /** The login. `null` without a login. `undefined`: not known yet. */
  login = $state.raw<Me | null | undefined>(undefined);
  /** Whether the login has ended while the page is open. The page keeps its content until the next login. */
  isExpired = $state(false);
  /** The reason why there is no login. */
  loginError = $state("");
  version = $state(0);
  /** Whether the stream to the server is open. */
  isOpen = $state(false);
  /** The last time at which the state was known to be current. */
  asOf = $state.raw<Date | undefined>(undefined);
  /** The reason why the stream was lost. */
  why = $state("");
  #model = emptyModel();
  #transcript: Transcript | undefined;
  #abort: AbortController | undefined;
  #isDrawPending = false;
  #lastDraw = 0;
  readonly #breath = new Breath();
  #rest: ReturnType<typeof setTimeout> | undefined;
  #hidden: ReturnType<typeof setTimeout> | undefined;
  /** Whether the stream was ended because the tab is hidden. */
  #isSuspended = false;

  constructor() {
    document.addEventListener("visibilitychange", () => this.#changeVisibility());
    whenLoginEnds(() => void this.#checkLogin());
    onOtherTab((change) => {
      if (change === "out") this.end();
      else if (!this.isLoggedIn) void this.start();
    });
  }

  get model(): Model {
    void this.version;
    return this.#model;
  }

  get transcript(): Transcript | undefined {
    void this.version;
    return this.#transcript;
  }

  get isOperator(): boolean {
    return this.login?.role === "operator";
  }

  get isLoggedIn(): boolean {
    return Boolean(this.login) && !this.isExpired;
  }

  /** Whether the page shows the current state. */
  get isCurrent(): boolean {
    return this.isOpen && !this.model.lost;
  }

  async start(): Promise<void> {
    let found: Me | undefined;
    try {
      found = await me();
      this.loginError = "";
    } catch (error) {
      this.loginError = error instanceof Error ? error.message : String(error);
    }
    if (found) {
      takeAddress();
      this.isExpired = false;
      this.login = found;
      this.#follow();
    } else {
      keepAddress();
      if (!this.isExpired) this.login = null;
    }
  }

  /** Removes the login and all data of the page. */
  end(): void {
    this.#abort?.abort();
    this.#abort = undefined;
    clearTimeout(this.#rest);
    forgetContents();
    this.login = null;
    this.isExpired = false;
    this.#model = emptyModel();
    this.#transcript = undefined;
    this.isOpen = false;
    this.version += 1;
  }

  /** Selects the thread whose transcript the stream contains. */
  select(sessionId: string, threadId: string): void {
    if (this.#transcript?.threadId === threadId) return;
    this.#transcript = { sessionId, threadId, entries: [], isClosed: false, isLoaded: false, error: "" };
    this.version += 1;
    this.#followSoon();
  }

  /** Follows the selected transcript again, because its thread was reopened. */
  reselect(): void {
    if (this.#transcript) this.#followSoon();
  }

  deselect(): void {
    clearTimeout(this.#rest);
    this.#transcript = undefined;
  }

  /** Schedules a new version, which draws the page with the current state of the model. */
  draw(): void {
    if (this.#isDrawPending) return;
    this.#isDrawPending = true;
    const wait = Math.max(0, this.#lastDraw + DRAW_MS - performance.now());
    setTimeout(() => {
      this.#isDrawPending = false;
      this.#lastDraw = performance.now();
      this.version += 1;
    }, wait);
  }

  #followSoon(): void {
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => this.#follow(), REST_MS);
  }

  #changeVisibility(): void {
    clearTimeout(this.#hidden);
    if (document.hidden) this.#hidden = setTimeout(() => this.#suspend(), HIDDEN_MS);
    else if (this.#isSuspended) this.#follow();
  }

  #suspend(): void {
    if (!this.login) return;
    this.#abort?.abort();
    this.#isSuspended = true;
    this.#markStale("the tab was hidden");
  }

  /** Ends the stream if the login has ended. Another tab may have started a newer login, which then applies. */
  async #checkLogin(): Promise<void> {
    try {
      if (await me()) return;
    } catch {
      return;
    }
    if (!this.isLoggedIn) return;
    this.#abort?.abort();
    this.isExpired = true;
    this.loginError = "The login has ended. Log in again to continue where you were.";
    keepAddress();
    this.#markStale("the login has ended");
  }

  /** Opens a new stream, which replaces an open one. */
  #follow(): void {
    this.#isSuspended = false;
    if (!this.isLoggedIn) return;
    this.#abort?.abort();
    const abort = new AbortController();
    this.#abort = abort;
    void this.#run(abort.signal);
  }

  async #run(signal: AbortSignal): Promise<void> {
    let wait = BACKOFF_MS.first;
    while (!signal.aborted) {
      try {
        await this.#read(signal, () => (wait = BACKOFF_MS.first));
        this.why = "the stream has ended";
      } catch (error) {
        if (signal.aborted) return;
        const cause = callErrorOf(error);
        this.why = cause.message;
        if (cause.isLogin) await this.#checkLogin();
      }
      if (signal.aborted) return;
      this.isOpen = false;
      await new Promise((resolve) => setTimeout(resolve, wait * (0.5 + Math.random() / 2)));
      wait = Math.min(wait * 2, BACKOFF_MS.most);
    }
  }

  async #read(signal: AbortSignal, onOpen: () => void): Promise<void> {
    const transcript = this.#transcript;
    if (transcript) Object.assign(transcript, { entries: [], isLoaded: false });
    // The new state replaces the old state once it is complete, so that the page does not flicker.
    const model = emptyModel();
    const request = { threadId: transcript?.threadId ?? "", transcriptTail: TRANSCRIPT_TAIL };
    const silence = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const watch = () => {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
    };
    watch();
    const loading = setTimeout(() => this.#markStale("the state is loading"), LOAD_MS);
    const ended = new AbortController();
    const rereads = new Rereads(AbortSignal.any([signal, ended.signal]));
    const options = { signal: AbortSignal.any([signal, silence.signal]) };
    try {
      for await (const message of consoleService.watch(request, options)) {
        onOpen();
        watch();
        this.#apply(model, transcript, message);
        if (model !== this.#model && (isComplete(model) || this.#model.sessions.size === 0)) this.#model = model;
        if (model === this.#model) {
          clearTimeout(loading);
          this.isOpen = true;
          if (!model.lost) this.asOf = new Date();
          this.#readUnclear(model, rereads);
        } else if (model.lost) {
          this.#markStale(model.lost);
        }
        this.draw();
        await this.#breath.take();
      }
    } finally {
      clearTimeout(loading);
      clearTimeout(timer);
      ended.abort();
    }
  }

  /** Marks the page as not current. */
  #markStale(why: string): void {
    this.isOpen = false;
    this.why = why;
  }

  #apply(model: Model, transcript: Transcript | undefined, message: WatchResponse): void {
    const { update } = message;
    if (update.case === "transcript" && transcript) {
      const { entries, closed } = update.value;
      transcript.entries = [...transcript.entries, ...entries].slice(-MAX_ENTRIES);
      transcript.isClosed = closed;
      transcript.isLoaded = true;
      transcript.error = "";
    } else if (update.case === "transcriptError" && transcript) {
      transcript.isLoaded = true;
      transcript.error = update.value;
    } else {
      fold(model, message);
    }
  }

  /** Reads again the parts whose new content is not in the events. */
  #readUnclear(model: Model, rereads: Rereads): void {
    for (const [sessionId, { view }] of model.sessions) {
      for (const threadId of view.unclear.threads) {
        void rereads.read(threadId, () => supervisor.getThread({ sessionId, threadId }), ({ thread }) => {
          if (thread) putReadThread(view, thread);
          this.draw();
        });
      }
      for (const groupId of view.unclear.groups) {
        void rereads.read(groupId, () => supervisor.getGroup({ sessionId, groupId }), ({ group }) => {
          if (group) putReadGroup(view, group);
          this.draw();
        });
      }
      view.unclear.threads.clear();
      view.unclear.groups.clear();
    }
  }
}

export const live = new Live();
