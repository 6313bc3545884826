// The events of a session as a union of all kinds.

import { timestampDate } from "@bufbuild/protobuf/wkt";

import type { Approval, Session } from "./client.js";
import type { Event } from "./gen/troupe/supervisor/v1/event_pb.js";

type Kinds = Exclude<Event["kind"], { case: undefined }>;

/** What every event has. */
interface Common {
  /** The event's number in the session: 1 for the first, + 1 for each. */
  readonly sequence: bigint;
  readonly sessionId: string;
  /** The thread that the event is about; empty for events about the session. */
  readonly threadId: string;
  readonly time: Date;
  /** The principal that caused the event: `operator:NAME`, `thread:ID`, `runner:NAME` or `service`. */
  readonly actor: string;
  /** The whole event, as the supervisor sent it. */
  readonly proto: Event;
}

/** Decides the request of an event. */
interface Decisions {
  /** Grants the request. */
  readonly grant: (reason?: string) => Promise<Approval>;
  /** Denies the request. A denial affects this request only. */
  readonly deny: (reason?: string) => Promise<Approval>;
}

type Known = {
  [K in Kinds["case"]]: Common & { readonly kind: K; readonly data: Extract<Kinds, { case: K }>["value"] } & (K extends "approvalRequested"
      ? Decisions
      : unknown);
}[Kinds["case"]];

/** One change of a session's state. Ignore the kind `unknown`: it is newer than this release. */
export type SessionEvent = Known | (Common & { readonly kind: "unknown"; readonly data: undefined });

/** Returns the event of a message. */
export function sessionEvent(proto: Event, session: Session): SessionEvent {
  const common: Common = {
    sequence: proto.sequence,
    sessionId: proto.sessionId,
    threadId: proto.threadId,
    time: proto.time ? timestampDate(proto.time) : new Date(0),
    actor: proto.actor,
    proto,
  };
  const { kind } = proto;
  if (kind.case === undefined) return { ...common, kind: "unknown", data: undefined };
  if (kind.case === "approvalRequested") {
    const { approvalId } = kind.value;
    return {
      ...common,
      kind: kind.case,
      data: kind.value,
      grant: (reason) => session.grant(approvalId, reason),
      deny: (reason) => session.deny(approvalId, reason),
    };
  }
  return { ...common, kind: kind.case, data: kind.value } as SessionEvent;
}
