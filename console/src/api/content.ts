// Content that is stored next to the events.

import { readContent, textOf } from "@troupe/client/web";

import { supervisor, UNLIMITED } from "./clients";

/** Contents that are kept for the next reader. */
const MAX_KEPT = 64;
/** Larger contents are not kept, in bytes. */
const MAX_KEPT_SIZE = 1024 * 1024;

const kept = new Map<string, Promise<Uint8Array>>();

/** Reads content. Equal requests share one call. */
export function content(sessionId: string, digest: string): Promise<Uint8Array> {
  const key = `${sessionId}/${digest}`;
  const known = kept.get(key);
  if (known) return known;
  const reading = readContent(supervisor, sessionId, digest, UNLIMITED);
  kept.set(key, reading);
  reading.then(
    ({ length }) => length >= MAX_KEPT_SIZE && kept.delete(key),
    () => kept.delete(key),
  );
  const oldest = kept.keys().next().value;
  if (kept.size > MAX_KEPT && oldest) kept.delete(oldest);
  return reading;
}

/** Forgets what was read with the login that ends. */
export function forgetContents(): void {
  kept.clear();
}

export async function textContent(sessionId: string, digest: string): Promise<string> {
  return textOf(await content(sessionId, digest));
}
