// Keys of the page. A view registers its keys while it is shown. Keys of single characters can be switched off, because
// speech input may produce these characters.

import { untrack } from "svelte";

export interface Key {
  readonly key: string;
  readonly text: string;
  readonly run: () => void;
}

const STORE = "troupe.keys";
/** The keys that repeat while they are held. All other keys do not: a held key must not decide several approvals. */
const REPEATING = new Set(["j", "k"]);

class Keys {
  isOn = $state(localStorage.getItem(STORE) !== "off");
  #groups = $state.raw<readonly { title: string; keys: readonly Key[] }[]>([]);

  constructor() {
    addEventListener("keydown", (event) => this.#press(event));
  }

  get groups() {
    return this.#groups;
  }

  toggle(): void {
    this.isOn = !this.isOn;
    localStorage.setItem(STORE, this.isOn ? "on" : "off");
  }

  /** Registers keys. Returns the function that removes them. */
  add(title: string, keys: readonly Key[]): () => void {
    const group = { title, keys };
    // Untracked, so that an effect that adds keys does not depend on the keys of other views.
    untrack(() => (this.#groups = [...this.#groups, group]));
    return () => untrack(() => (this.#groups = this.#groups.filter((other) => other !== group)));
  }

  #press(event: KeyboardEvent): void {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.repeat && !REPEATING.has(event.key)) return;
    if (event.key === "Enter" && hasOwnEnter(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key.length === 1 && !this.isOn && event.key !== "?") return;
    const keys = this.#groups.toReversed().flatMap((group) => group.keys);
    const key = keys.find((candidate) => candidate.key === event.key);
    if (!key) return;
    event.preventDefault();
    key.run();
  }
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Whether Enter has a meaning of the browser for the element, such as following a link. */
function hasOwnEnter(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("a, button, summary") !== null;
}

export const keys = new Keys();
