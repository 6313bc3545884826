// Closed threads and sessions, which the stream of the tab does not contain.

import { supervisor } from "../api/clients";
import { messageOf } from "../api/errors";
import { allPages } from "../api/pages";
import { ListScope, StatusKind, type Session, type Thread } from "../model/messages";

const PAGE_SIZE = 1_000;

export class ClosedThreads {
  session: Session | undefined = $state.raw();
  threads: readonly Thread[] = $state.raw([]);
  /** The thread in the address. */
  selected: Thread | undefined = $state.raw();
  error = $state("");
  #loaded = "";
  #wanted = "";

  /**
   * Reads the closed threads of a session; with `isClosed`, the session and all of its threads. Repeated calls with the
   * same arguments read nothing, except after an error.
   */
  async load(sessionId: string, isClosed: boolean): Promise<void> {
    const key = `${sessionId} ${isClosed}`;
    if (this.#loaded === key) return;
    this.#loaded = key;
    try {
      const session = isClosed ? (await supervisor.getSession({ sessionId })).session : undefined;
      const statuses = isClosed ? [] : [StatusKind.SHUTDOWN];
      const request = { sessionId, scope: ListScope.ALL, includeClosed: true, includeSelf: true, statuses, pageSize: PAGE_SIZE };
      const threads = await allPages(
        (page) => supervisor.listActiveAgents({ ...request, ...page }),
        ({ threads }) => threads,
      );
      if (this.#loaded !== key) return;
      this.session = session;
      this.threads = threads;
      this.error = "";
    } catch (error) {
      if (this.#loaded !== key) return;
      this.#loaded = "";
      this.error = messageOf(error);
    }
  }

  async select(sessionId: string, threadId: string): Promise<void> {
    if (this.#wanted === threadId) return;
    this.#wanted = threadId;
    try {
      const { thread } = await supervisor.getThread({ sessionId, threadId });
      if (this.#wanted !== threadId) return;
      this.selected = thread;
      this.error = "";
    } catch (error) {
      if (this.#wanted !== threadId) return;
      this.#wanted = "";
      this.error = messageOf(error);
    }
  }
}
