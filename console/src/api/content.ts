// Content that is stored outside of the events.

import { readContent, textOf } from "@troupe/client/web";

import { supervisor, UNLIMITED } from "./clients";

/** Maximum number of cached contents. */
const MAX_KEPT = 64;
/** Maximum size of a cached content, in bytes. */
const MAX_KEPT_SIZE = 1024 * 1024;

const kept = new Map<string, Promise<Uint8Array>>();

/** Reads content. Requests for the same content share one call. */
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

/** Clears the cache. Called when the login ends. */
export function forgetContents(): void {
  kept.clear();
}

export async function textContent(sessionId: string, digest: string): Promise<string> {
  return textOf(await content(sessionId, digest));
}
