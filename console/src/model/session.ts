// Properties of sessions that the page shows.

import { line } from "../text/sanitize";
import { shortId } from "../text/format";
import type { Session } from "./messages";

/** Returns the name of a session: its directory, or its id. */
export function nameOf({ cwd, sessionId }: Session): string {
  return line(cwd.split("/").filter(Boolean).at(-1) ?? "") || shortId(sessionId);
}

/** Returns the labels of a session: `team=core`. */
export function labelsOf({ labels }: Session): string[] {
  return Object.entries(labels).map(([name, value]) => line(`${name}=${value}`));
}
