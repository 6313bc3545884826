// Content that is stored next to the events.

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
  const reading = read(sessionId, digest);
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
  return new TextDecoder().decode(await content(sessionId, digest));
}

async function read(sessionId: string, digest: string): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const { data } of supervisor.getContent({ sessionId, digest }, UNLIMITED)) parts.push(data);
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}
