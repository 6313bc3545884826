// The views and their addresses. Only the first screen is loaded with the page.

import type { Component } from "svelte";

import Needs from "./views/Needs.svelte";

export interface View {
  readonly title: string;
  readonly props: Record<string, string>;
  readonly load: () => Promise<{ default: Component<any> }>;
}

/** Returns the view of a path, which is split at its slashes. */
export function viewOf([place, id = "", part, group = ""]: readonly string[]): View {
  if (place === "sessions" && id) return sessionView(id, part, group);
  switch (place) {
    case undefined:
      return { title: "Needs you", props: {}, load: async () => ({ default: Needs }) };
    case "sessions":
      return { title: "Sessions", props: {}, load: () => import("./views/Sessions.svelte") };
    default:
      return { title: "Not found", props: {}, load: () => import("./views/NotFound.svelte") };
  }
}

function sessionView(sessionId: string, part: string | undefined, _group: string): View {
  const props = { sessionId };
  switch (part) {
    case undefined:
      return { title: "Session", props, load: () => import("./views/Session.svelte") };
    default:
      return { title: "Not found", props: {}, load: () => import("./views/NotFound.svelte") };
  }
}
