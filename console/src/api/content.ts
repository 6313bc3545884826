// Content that is stored next to the events.

import { supervisor } from "./clients";

/** Contents that are kept for the next reader. */
const MAX_KEPT = 64;

const kept = new Map<string, Promise<Uint8Array>>();

/** Reads content. Equal requests share one call. */
export function content(sessionId: string, digest: string): Promise<Uint8Array> {
  const key = `${sessionId}/${digest}`;
  const known = kept.get(key);
  if (known) return known;
  const reading = read(sessionId, digest);
  kept.set(key, reading);
  reading.catch(() => kept.delete(key));
  const oldest = kept.keys().next().value;
  if (kept.size > MAX_KEPT && oldest) kept.delete(oldest);
  return reading;
}

export async function textContent(sessionId: string, digest: string): Promise<string> {
  return new TextDecoder().decode(await content(sessionId, digest));
}

async function read(sessionId: string, digest: string): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const { data } of supervisor.getContent({ sessionId, digest })) parts.push(data);
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}
