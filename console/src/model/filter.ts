// The filter language of lists of threads, as in `troupe ps --filter`: terms that must all match.

import { attentionOf } from "./attention";
import { ConditionKind, StatusKind, type Session, type Thread } from "./messages";
import { activityOf, roleOf, statusOf } from "./thread";

type Matches = (session: Session, thread: Thread) => boolean;

const KEYS = ["s", "r", "a", "m", "on", "label", "needs", "over"];
const STATUSES = Object.values(StatusKind)
  .filter((kind) => typeof kind === "number" && kind !== StatusKind.UNSPECIFIED)
  .map((kind) => statusText(kind as StatusKind));

/** Selects threads. Without a term, every thread matches. */
export class Filter {
  readonly text: string;
  readonly #terms: readonly Matches[];

  /** Throws an `Error` that names the mistake. */
  constructor(text: string) {
    this.text = text;
    this.#terms = words(text).map(term);
  }

  get isEmpty(): boolean {
    return this.#terms.length === 0;
  }

  matches(session: Session, thread: Thread): boolean {
    return this.#terms.every((matches) => matches(session, thread));
  }

  /** Returns the ids of the threads that match. With `ancestors`, the threads above them too. */
  selected(session: Session, threads: readonly Thread[], ancestors: boolean): Set<string> {
    const selected = new Set<string>();
    // In reverse, because parents come before children.
    for (const thread of threads.toReversed()) {
      if (!selected.has(thread.threadId) && !this.matches(session, thread)) continue;
      selected.add(thread.threadId);
      if (ancestors && thread.parentThreadId) selected.add(thread.parentThreadId);
    }
    return selected;
  }
}

/** Splits a filter at spaces outside of double quotes, and removes the quotes. */
function words(text: string): string[] {
  if ((text.split('"').length - 1) % 2) throw new Error(`a double quote is not closed in ${text}`);
  const found = text.match(/(?:"[^"]*"|[^" ])+/g) ?? [];
  return found.map((word) => word.replaceAll('"', ""));
}

function term(text: string): Matches {
  const isNegated = text.startsWith("-");
  const word = (isNegated ? text.slice(1) : text).toLowerCase();
  if (!word) throw new Error("a term is empty");
  const colon = word.indexOf(":");
  const test = colon < 0 ? textTest(word) : keyedTest(word.slice(0, colon), word.slice(colon + 1));
  return isNegated ? (session, thread) => !test(session, thread) : test;
}

function textTest(text: string): Matches {
  const contains = containsAny([text]);
  return (_, thread) =>
    contains(thread.threadId) ||
    contains(thread.alias) ||
    contains(roleOf(thread)) ||
    contains(thread.label) ||
    contains(activityOf(thread));
}

function keyedTest(key: string, value: string): Matches {
  const texts = value.split(",").filter(Boolean);
  if (texts.length === 0) throw new Error(`"${key}:" needs a value`);
  const contains = containsAny(texts);
  switch (key) {
    case "s":
      texts.forEach(checkStatus);
      return (_, thread) => texts.some((text) => statusText(statusOf(thread)).startsWith(text));
    case "r":
      return (_, thread) => contains(roleOf(thread));
    case "a":
      return (_, thread) => contains(thread.alias);
    case "m":
      return (_, thread) => contains(thread.model);
    case "on":
      return (_, thread) => contains(thread.runnerId);
    case "label":
      return (session, thread) =>
        contains(thread.label) || Object.entries(session.labels).some(([name, label]) => contains(`${name}=${label}`));
    case "needs":
      if (value !== "me") throw new Error(`unknown value "${value}"; use needs:me`);
      return (_, thread) => attentionOf(thread) !== undefined;
    case "over":
      if (value !== "budget") throw new Error(`unknown value "${value}"; use over:budget`);
      return (_, thread) => thread.conditions.some(({ kind }) => kind === ConditionKind.BUDGET_EXHAUSTED);
    default:
      throw new Error(`unknown key "${key}"; the keys are ${KEYS.join(", ")}`);
  }
}

function containsAny(texts: readonly string[]): (value: string) => boolean {
  return (value) => {
    const lower = value.toLowerCase();
    return texts.some((text) => lower.includes(text));
  };
}

function statusText(kind: StatusKind): string {
  return (StatusKind[kind] ?? "").toLowerCase();
}

function checkStatus(text: string): void {
  if (STATUSES.some((status) => status.startsWith(text))) return;
  throw new Error(`unknown status "${text}"; the statuses are ${STATUSES.join(", ")}`);
}
