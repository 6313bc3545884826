// The views and their addresses. Only the first view is loaded with the page.

import type { Component } from "svelte";

import Needs from "./views/Needs.svelte";

export interface View {
  readonly title: string;
  readonly props: Record<string, string>;
  readonly load: () => Promise<{ default: Component<any> }>;
}

/** Returns the view of a path. */
export function viewOf(path: string): View {
  const [place, id = "", part, group = ""] = path.split("/").filter(Boolean);
  if (place === "sessions" && id) return sessionView(id, part, group);
  switch (place) {
    case undefined:
      return { title: "Needs you", props: {}, load: async () => ({ default: Needs }) };
    case "sessions":
      return { title: "Sessions", props: {}, load: () => import("./views/Sessions.svelte") };
    case "runners":
      return { title: "Runners", props: {}, load: () => import("./views/Runners.svelte") };
    case "roles":
      return { title: "Roles", props: {}, load: () => import("./views/Roles.svelte") };
    case "usage":
      return { title: "Usage", props: {}, load: () => import("./views/Usage.svelte") };
    case "health":
      return { title: "Health", props: {}, load: () => import("./views/Health.svelte") };
    default:
      return { title: "Not found", props: {}, load: () => import("./views/NotFound.svelte") };
  }
}

function sessionView(sessionId: string, part: string | undefined, groupId: string): View {
  const props = { sessionId };
  switch (part) {
    case undefined:
      return { title: "Session", props, load: () => import("./views/Session.svelte") };
    case "timeline":
      return { title: "Timeline", props, load: () => import("./views/Timeline.svelte") };
    case "audit":
      return { title: "Audit", props, load: () => import("./views/Audit.svelte") };
    case "groups":
      return groupId
        ? { title: "Group", props: { sessionId, groupId }, load: () => import("./views/GroupItems.svelte") }
        : { title: "Groups", props, load: () => import("./views/Groups.svelte") };
    default:
      return { title: "Not found", props: {}, load: () => import("./views/NotFound.svelte") };
  }
}
