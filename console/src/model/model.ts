// The followed sessions, folded from the messages of the stream.

import { apply, emptyView, forgetClosed, statusOf, type SessionView } from "@troupe/client/session_view";

import type { WatchResponse } from "../gen/troupe/console/v1/console_pb";
import { attentionOf } from "./attention";
import { ConditionKind, StatusKind, type Approval, type Session, type Thread } from "./messages";
import { isActive } from "./thread";

/** Maximum number of stored closed threads of a session. Above the maximum, all of them are removed. */
const MAX_CLOSED_THREADS = 256;
/** Maximum number of stored closed sessions. */
const MAX_CLOSED_SESSIONS = 20;

export interface Followed {
  /** The session with its newest roll-up. */
  info: Session;
  readonly view: SessionView;
  link: "new" | "live" | "interrupted" | "rejected";
  /** The reason why the session cannot be followed. */
  rejection: string;
  /** The number of threads that were closed since closed threads were last removed. */
  closed: number;
}

export interface Model {
  readonly sessions: Map<string, Followed>;
  /** Whether every session that was open at the start is known. */
  isSynced: boolean;
  /** The reason why the server lost its connection to the supervisor. Empty: the server is connected. */
  lost: string;
}

export interface Totals {
  readonly sessions: number;
  readonly threads: number;
  readonly running: number;
  readonly queued: number;
  readonly approvals: number;
}

/** A row of the page "Needs you". */
export type Need = { readonly since: number; readonly followed: Followed } & (
  | { readonly approval: Approval; readonly thread?: never }
  | { readonly thread: Thread; readonly approval?: never }
);

export function emptyModel(): Model {
  return { sessions: new Map(), isSynced: false, lost: "" };
}

/** Applies a message of the stream. Transcripts are not part of the model. */
export function fold(model: Model, { update }: WatchResponse): void {
  switch (update.case) {
    case "session": {
      const { session, removed, synced } = update.value;
      model.lost = "";
      model.isSynced ||= synced;
      if (session) putSession(model, session, removed);
      break;
    }
    case "threads": {
      const followed = model.sessions.get(update.value.sessionId);
      if (followed && update.value.response) applyThreads(followed, update.value.response);
      break;
    }
    case "openedSessionId":
      setLink(model, update.value, "live");
      break;
    case "interruptedSessionId":
      setLink(model, update.value, "interrupted");
      break;
    case "deletedSessionId":
      model.sessions.delete(update.value);
      break;
    case "unfollowed":
      setLink(model, update.value.sessionId, "rejected", update.value.reason);
      break;
    case "lost":
      model.lost = update.value;
      break;
  }
}

/** Whether every session that was open at the start is completely known or cannot be followed at the moment. */
export function isComplete(model: Model): boolean {
  const isKnown = (followed: Followed) =>
    followed.view.isComplete || isClosed(followed) || followed.link === "rejected" || followed.link === "interrupted";
  return model.isSynced && [...model.sessions.values()].every(isKnown);
}

export function isClosed({ info, view }: Followed): boolean {
  return info.closed || (view.session?.closed ?? false);
}

/** Returns the session with its newest settings and roll-up. */
export function sessionOf({ info, view }: Followed): Session {
  const { session } = view;
  if (!session) return info;
  const { sequence, updateTime } = info.sequence < session.sequence ? session : info;
  const { rollUp = session.rollUp } = info;
  return { ...session, sequence, ...(rollUp && { rollUp }), ...(updateTime && { updateTime }) };
}

/** Returns the sessions, the newest first. */
export function sessionsOf(model: Model): Followed[] {
  return [...model.sessions.values()].sort((a, b) => (a.info.sessionId < b.info.sessionId ? 1 : -1));
}

export function totalsOf(model: Model): Totals {
  const totals = { sessions: 0, threads: 0, running: 0, queued: 0, approvals: 0 };
  for (const followed of model.sessions.values()) {
    if (isClosed(followed)) continue;
    totals.sessions += 1;
    totals.approvals += followed.view.approvals.size;
    for (const thread of followed.view.threads.values()) {
      const status = statusOf(thread);
      if (status !== StatusKind.SHUTDOWN) totals.threads += 1;
      // The root holds no slot.
      if (isActive(thread) && thread.depth > 0) totals.running += 1;
      if (status === StatusKind.QUEUED) totals.queued += 1;
    }
  }
  return totals;
}

/** Returns the approvals, then the threads that wait for a person. Both parts are ordered oldest first. */
export function needsOf(model: Model): Need[] {
  const approvals: Need[] = [];
  const threads: Need[] = [];
  for (const followed of model.sessions.values()) {
    if (isClosed(followed)) continue;
    const { view } = followed;
    const waiting = new Set<string>();
    for (const approval of view.approvals.values()) {
      waiting.add(approval.threadId);
      approvals.push({ since: Number(approval.createTime?.seconds ?? 0n), followed, approval });
    }
    for (const thread of view.threads.values()) {
      const attention = attentionOf(thread);
      if (!attention || attention.isApproval || waiting.has(thread.threadId)) continue;
      threads.push({ since: Number(sinceOf(thread)), followed, thread });
    }
  }
  const oldest = (a: Need, b: Need) => a.since - b.since;
  return [...approvals.sort(oldest), ...threads.sort(oldest)];
}

function sinceOf(thread: Thread): bigint {
  const condition = thread.conditions.find(({ kind }) => kind === attentionOf(thread)?.condition);
  return (condition?.since ?? thread.status?.since)?.seconds ?? 0n;
}

/** Whether a thread has a condition. */
export function hasCondition(thread: Thread, kind: ConditionKind): boolean {
  return thread.conditions.some((condition) => condition.kind === kind);
}

function applyThreads(followed: Followed, response: Parameters<typeof apply>[1]): void {
  followed.link = "live";
  apply(followed.view, response);
  const { message } = response;
  if (message.case === "event" && message.value.kind.case === "threadClosed") followed.closed += 1;
  if (followed.closed > MAX_CLOSED_THREADS) {
    forgetClosed(followed.view);
    followed.closed = 0;
  }
}

function setLink(model: Model, sessionId: string, link: Followed["link"], rejection = ""): void {
  const followed = model.sessions.get(sessionId);
  if (followed) Object.assign(followed, { link, rejection });
}

function putSession(model: Model, session: Session, isRemoved: boolean): void {
  const known = model.sessions.get(session.sessionId);
  if (isRemoved && !session.closed) {
    model.sessions.delete(session.sessionId);
  } else if (known) {
    known.info = session;
  } else if (!isRemoved) {
    const followed: Followed = { info: session, view: emptyView(), link: "new", rejection: "", closed: 0 };
    model.sessions.set(session.sessionId, followed);
  }
  const closed = [...model.sessions.values()].filter(isClosed);
  if (closed.length > MAX_CLOSED_SESSIONS && closed[0]) model.sessions.delete(closed[0].info.sessionId);
}
