// Results of actions, and what a screen reader is told.

const SHOWN_MS = 6_000;
/** The shortest time between two announcements. */
const QUIET_MS = 5_000;

export interface Notice {
  readonly id: number;
  readonly text: string;
  readonly isError: boolean;
}

class Notices {
  list = $state.raw<readonly Notice[]>([]);
  /** The text of the polite live region. */
  announcement = $state("");
  #next = 0;
  #announced = -QUIET_MS;
  #pending: ReturnType<typeof setTimeout> | undefined;

  success(text: string): void {
    const id = this.#add(text, false);
    setTimeout(() => this.dismiss(id), SHOWN_MS);
  }

  error(text: string): void {
    this.#add(text, true);
  }

  dismiss(id: number): void {
    this.list = this.list.filter((notice) => notice.id !== id);
  }

  /** Announces a text. Of texts within five seconds, the last one is announced. */
  announce(text: string): void {
    clearTimeout(this.#pending);
    const wait = Math.max(0, this.#announced + QUIET_MS - performance.now());
    this.#pending = setTimeout(() => {
      this.#announced = performance.now();
      // A screen reader announces a change. A repeated text differs in a space.
      this.announcement = text === this.announcement ? `${text}\u00a0` : text;
    }, wait);
  }

  #add(text: string, isError: boolean): number {
    const id = this.#next++;
    this.list = [...this.list.slice(-3), { id, text, isError }];
    return id;
  }
}

export const notices = new Notices();
