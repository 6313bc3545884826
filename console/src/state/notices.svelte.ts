// Results of actions, and announcements for a screen reader.

const SHOWN_MS = 6_000;
/** Minimum time between two announcements. */
const QUIET_MS = 5_000;

export interface Notice {
  readonly id: number;
  readonly text: string;
  readonly isError: boolean;
}

class Notices {
  list = $state.raw<readonly Notice[]>([]);
  /** The text of the live region with `aria-live="polite"`. */
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

  /** Announces a text. If there are several texts within five seconds, only the last one is announced. */
  announce(text: string): void {
    clearTimeout(this.#pending);
    const wait = Math.max(0, this.#announced + QUIET_MS - performance.now());
    this.#pending = setTimeout(() => {
      this.#announced = performance.now();
      // A screen reader announces changes only, so a space is added to a repeated text.
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
