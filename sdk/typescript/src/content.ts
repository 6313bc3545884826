// Content that the supervisor stores next to the events.

import type { CallOptions } from "@connectrpc/connect";

import type { Supervisor } from "./rpc.js";

/** Reads content of a session by its SHA-256 digest. */
export async function readContent(
  stub: Pick<Supervisor, "getContent">,
  sessionId: string,
  digest: string,
  options?: CallOptions,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const { data } of stub.getContent({ sessionId, digest }, options)) {
    parts.push(data);
    size += data.length;
  }
  const whole = new Uint8Array(size);
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

/** Decodes content as UTF-8. */
export function textOf(content: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(content);
}
