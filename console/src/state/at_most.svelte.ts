// Limits the rate of changes of a value, for code that calls a service after each change.

import { untrack } from "svelte";

/**
 * Returns a copy of a value that changes at most once in `ms` milliseconds. Has to be called while a component is
 * created.
 */
export function atMostEvery<T>(ms: number, read: () => T): { readonly value: T } {
  let value = $state.raw(untrack(read));
  let changed = performance.now();
  $effect(() => {
    const next = read();
    const timer = setTimeout(() => {
      changed = performance.now();
      value = next;
    }, Math.max(0, changed + ms - performance.now()));
    return () => clearTimeout(timer);
  });
  return {
    get value() {
      return value;
    },
  };
}
