// Exports of sessions.

import { toJsonString } from "@bufbuild/protobuf";

import { ExportSessionResponseSchema } from "../model/messages";
import { supervisor, UNLIMITED } from "./clients";

/** Returns the records of a session as lines of JSON. */
export async function exported(sessionId: string): Promise<string[]> {
  const lines: string[] = [];
  for await (const record of supervisor.exportSession({ sessionId }, UNLIMITED)) {
    lines.push(`${toJsonString(ExportSessionResponseSchema, record)}\n`);
  }
  return lines;
}
