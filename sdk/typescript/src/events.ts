// The events of a session as a union of all kinds.

import { timestampDate } from "@bufbuild/protobuf/wkt";

import type { Approval, Session } from "./client.js";
import type { Event } from "./gen/troupe/supervisor/v1/event_pb.js";

/** The kinds of events that this release knows: the name and the message of each. */
export type EventKinds = Exclude<Event["kind"], { case: undefined }>;

/** The properties of every event. */
export interface EventCommon {
  /** The event's number in the session: 1 for the first event, increased by 1 for each event. */
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

/** The methods of an event about a new approval, which decide it. */
export interface EventDecisions {
  /** Grants the request. */
  readonly grant: (reason?: string) => Promise<Approval>;
  /** Denies the request. A denial affects this request only. */
  readonly deny: (reason?: string) => Promise<Approval>;
}

/** An event of a kind that this release knows. `kind` selects the type of `data`. */
export type KnownEvent = {
  [K in EventKinds["case"]]: EventCommon & {
    readonly kind: K;
    readonly data: Extract<EventKinds, { case: K }>["value"];
  } & (K extends "approvalRequested" ? EventDecisions : unknown);
}[EventKinds["case"]];

/** One change of a session's state. Ignore the kind `unknown`: it is newer than this release. */
export type SessionEvent = KnownEvent | (EventCommon & { readonly kind: "unknown"; readonly data: undefined });

/** Returns the event of a message. */
export function sessionEvent(proto: Event, session: Session): SessionEvent {
  const common: EventCommon = {
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
