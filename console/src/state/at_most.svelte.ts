// Values that change often, for readers that call a service with each change.

import { untrack } from "svelte";

/** Follows a value with at most one change in this time. A component calls it while it is created. */
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
