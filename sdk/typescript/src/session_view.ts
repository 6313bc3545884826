// A client's view of a session, folded from the messages of a watch.
//
//     const view = emptyView();
//     for await (const message of client.stub.watchThreads({ sessionId })) apply(view, message);
//
// The collections change in place. The messages in them are never modified: a change replaces a message, so a page redraws a
// row only if its message object is a new one.

import { create } from "@bufbuild/protobuf";

import {
  ApprovalDecision,
  type ApprovalRequested,
  type Event,
  type GroupCreated,
  type SessionUpdated,
  type Telemetry,
  type ThreadSpawned,
  TurnOutcome,
} from "./gen/troupe/supervisor/v1/event_pb.js";
import { type Group, GroupSchema, GroupState } from "./gen/troupe/supervisor/v1/group_pb.js";
import type { Session } from "./gen/troupe/supervisor/v1/session_pb.js";
import {
  type Approval,
  ApprovalSchema,
  ApprovalThreadSchema,
  type WatchThreadsResponse,
} from "./gen/troupe/supervisor/v1/supervisor_pb.js";
import {
  type Budget,
  ConditionKind,
  ConditionSchema,
  StatusKind,
  StatusSchema,
  type Thread,
  ThreadSchema,
  type Usage,
  UsageSchema,
} from "./gen/troupe/supervisor/v1/thread_pb.js";

type Kind = Event["kind"];

/** The session with its threads, its waiting approvals and its open groups. */
export interface SessionView {
  session: Session | undefined;
  /** By id, in spawn order: parents before children. */
  readonly threads: Map<string, Thread>;
  /** By id, oldest first. */
  readonly approvals: Map<string, Approval>;
  /** By id, oldest first. */
  readonly groups: Map<string, Group>;
  /** The groups that ended. A response about such a group from before its end is ignored. */
  readonly endedGroups: Set<string>;
  /** Whether the first snapshot is complete. */
  isComplete: boolean;
  /** The parts that events changed without including their new state. */
  readonly unclear: { readonly threads: Set<string>; readonly groups: Set<string> };
}

/** Returns the view before the first message. */
export function emptyView(): SessionView {
  return {
    session: undefined,
    threads: new Map(),
    approvals: new Map(),
    groups: new Map(),
    endedGroups: new Set(),
    isComplete: false,
    unclear: { threads: new Set(), groups: new Set() },
  };
}

/** Applies a message. Unknown kinds change nothing. */
export function apply(view: SessionView, { message }: WatchThreadsResponse): void {
  switch (message.case) {
    case "snapshot": {
      const { session, threads, approvals, groups, last } = message.value;
      // The first part of a snapshot replaces the complete view.
      if (session) {
        clear(view);
        view.session = session;
      }
      for (const thread of threads) view.threads.set(thread.threadId, thread);
      for (const approval of approvals) view.approvals.set(approval.approvalId, approval);
      for (const group of groups) view.groups.set(groupId(group), group);
      view.isComplete ||= last;
      break;
    }
    case "event":
      applyEvent(view, message.value);
      break;
    case "telemetry": {
      const thread = view.threads.get(message.value.threadId);
      if (thread) view.threads.set(thread.threadId, withTelemetry(thread, message.value));
      break;
    }
  }
}

/** Adds or replaces a thread that was read, unless later events have changed it. */
export function putReadThread(view: SessionView, thread: Thread): void {
  const known = view.threads.get(thread.threadId);
  if (!known || known.sequence <= thread.sequence) view.threads.set(thread.threadId, thread);
}

/** Adds or replaces a group that was read. Removes it if it has ended. Ignores it if an event has ended it since. */
export function putReadGroup(view: SessionView, group: Group): void {
  const id = groupId(group);
  if (!isOpenGroup(group)) view.groups.delete(id);
  else if (!view.endedGroups.has(id)) view.groups.set(id, group);
}

/** Returns the status of a thread. */
export function statusOf(thread: Thread): StatusKind {
  return thread.status?.kind ?? StatusKind.UNSPECIFIED;
}

/** Removes the closed threads. */
export function forgetClosed(view: SessionView): void {
  for (const [id, thread] of view.threads) {
    if (statusOf(thread) === StatusKind.SHUTDOWN) view.threads.delete(id);
  }
}

/** Returns the id of a group. */
export function groupId(group: Group): string {
  return group.spec?.groupId ?? "";
}

function clear(view: SessionView): void {
  view.threads.clear();
  view.approvals.clear();
  view.groups.clear();
  view.endedGroups.clear();
  view.unclear.threads.clear();
  view.unclear.groups.clear();
  view.isComplete = false;
}

function isOpenGroup({ state }: Group): boolean {
  return ![GroupState.SUCCEEDED, GroupState.FAILED, GroupState.CANCELLED].includes(state);
}

function applyEvent(view: SessionView, event: Event): void {
  const { kind } = event;
  switch (kind.case) {
    case undefined:
      break;
    case "sessionOpened":
      view.session = kind.value.session;
      break;
    case "sessionClosed":
      if (view.session) view.session = { ...view.session, closed: true };
      break;
    case "sessionUpdated": {
      if (view.session) view.session = withSettings(view.session, kind.value);
      // The root has the budget of the session.
      const root = view.threads.values().next().value;
      if (root && kind.value.budget) view.threads.set(root.threadId, { ...root, budget: bounded(kind.value.budget) });
      break;
    }
    case "threadSpawned":
      view.threads.set(event.threadId, spawnedThread(event, kind.value));
      if (kind.value.groupId) view.unclear.groups.add(kind.value.groupId);
      break;
    default:
      applyApproval(view, event);
      applyGroup(view, event);
      applyToThread(view, event);
  }
}

function applyToThread(view: SessionView, event: Event): void {
  const before = view.threads.get(event.threadId);
  const { kind } = event;
  if (!before) {
    // A closed thread that is not part of the snapshot is open again.
    if (kind.case === "threadResumed") view.unclear.threads.add(event.threadId);
    return;
  }
  const thread = { ...before };
  change(thread, event);
  endConditions(thread, kind);
  thread.sequence = event.sequence;
  thread.updateTime = event.time;
  view.threads.set(thread.threadId, thread);
  if (isUnclear(thread, before, kind)) view.unclear.threads.add(event.threadId);
}

function isUnclear(thread: Thread, before: Thread, kind: Kind): boolean {
  switch (kind.case) {
    // A different output ends the condition STALLED without a separate event.
    case "turnEnded":
      return thread.conditions.some((condition) => condition.kind === ConditionKind.STALLED);
    // The usage of the earlier attempt includes a turn only if the turn had started. The event does not say whether it
    // had.
    case "threadPlaced":
      return thread.generation !== before.generation;
    default:
      return kind.case === "threadResumed";
  }
}

function applyApproval(view: SessionView, event: Event): void {
  const { kind } = event;
  if (kind.case === "approvalRequested") {
    view.approvals.set(kind.value.approvalId, requestedApproval(view, event, kind.value));
  } else if (kind.case === "approvalResolved") {
    view.approvals.delete(kind.value.approvalId);
  }
}

function requestedApproval(view: SessionView, event: Event, requested: ApprovalRequested): Approval {
  const { approvalId, kind, subject, deadline, callSha256, content } = requested;
  return create(ApprovalSchema, {
    approvalId,
    sessionId: event.sessionId,
    threadId: event.threadId,
    kind,
    subject,
    createTime: event.time,
    deadline,
    callSha256,
    content,
    threads: ancestors(view, event.threadId).map(({ threadId, agentType, alias }) =>
      create(ApprovalThreadSchema, { threadId, agentType, alias }),
    ),
  });
}

/** Returns the thread and its ancestors. */
export function ancestors(view: SessionView, threadId: string): Thread[] {
  const chain = [];
  for (let thread = view.threads.get(threadId); thread; thread = view.threads.get(thread.parentThreadId)) chain.push(thread);
  return chain;
}

/** Applies an event to its group. Events have neither the counts nor the usage of a group. */
function applyGroup(view: SessionView, event: Event): void {
  const { kind } = event;
  switch (kind.case) {
    case "groupCreated": {
      const group = createdGroup(event, kind.value);
      view.groups.set(groupId(group), group);
      break;
    }
    case "groupEnded":
      view.groups.delete(kind.value.groupId);
      view.endedGroups.add(kind.value.groupId);
      break;
    case "groupRetried":
      view.endedGroups.delete(kind.value.groupId);
      view.unclear.groups.add(kind.value.groupId);
      break;
    case "groupUpdated":
    case "groupItemEnded":
    case "groupEnding":
      view.unclear.groups.add(kind.value.groupId);
      break;
  }
}

function createdGroup(event: Event, { spec, approvalId }: GroupCreated): Group {
  return create(GroupSchema, {
    sessionId: event.sessionId,
    parentThreadId: event.threadId,
    state: approvalId ? GroupState.AWAITING_APPROVAL : GroupState.RUNNING,
    spec,
    limits: spec?.limits,
    pending: spec?.itemCount ?? 0,
    approvalId,
    createTime: event.time,
    updateTime: event.time,
  });
}

function withSettings(session: Session, updated: SessionUpdated): Session {
  const next = { ...session };
  if (updated.mode !== undefined) next.mode = updated.mode;
  if (updated.orchestration !== undefined) next.orchestration = updated.orchestration;
  if (updated.paused !== undefined) next.paused = updated.paused;
  if (updated.budget) next.budget = updated.budget;
  if (updated.limits) next.limits = { ...session.limits, ...updated.limits };
  return next;
}

/** Returns the thread with its latest values. Values of an earlier attempt are ignored. */
function withTelemetry(thread: Thread, telemetry: Telemetry): Thread {
  if (thread.generation !== telemetry.generation) return thread;
  const { usage, contextLeftPercent, lastTool, activity, plan } = telemetry;
  return { ...thread, usage, contextLeftPercent, lastTool, activity, plan };
}

/** Applies an event to its thread, by the table of the state machine. */
function change(thread: Thread, event: Event): void {
  const before = statusOf(thread);
  const isSettled = [StatusKind.COMPLETED, StatusKind.ERRORED, StatusKind.INTERRUPTED].includes(before);
  const { kind } = event;
  switch (kind.case) {
    case "threadAdmitted":
      // A settled thread gets its next turn, because mail started it or because input waited for the end of its turn.
      if (isSettled) thread.turn += 1;
      setStatus(thread, event, StatusKind.PENDING_INIT);
      break;
    case "threadPlaced":
      thread.runnerId = kind.value.runnerId;
      beginAttempt(thread, kind.value.generation);
      if (before === StatusKind.RUNNING) setStatus(thread, event, StatusKind.PENDING_INIT);
      break;
    case "inputQueued":
      // If a slot is free, ThreadAdmitted follows in the same append.
      if (isSettled) {
        thread.turn += 1;
        setStatus(thread, event, StatusKind.QUEUED);
      }
      break;
    case "turnDispatched":
      thread.turn = kind.value.turn;
      break;
    case "turnStarted":
      thread.turn = kind.value.turn;
      setStatus(thread, event, StatusKind.RUNNING);
      break;
    case "turnEnded": {
      const { outcome, message, reason, turn, usage } = kind.value;
      setStatus(thread, event, statusOfOutcome(outcome), message, reason);
      thread.activity = "";
      // Turn 0 is the end of a turn that was never dispatched to a runner.
      thread.turn = turn || Math.max(0, thread.turn - 1);
      if (usage) setAttemptUsage(thread, usage);
      break;
    }
    case "noteSet":
      thread.threadNote = kind.value.threadNote;
      break;
    case "conditionChanged":
      setCondition(thread, event, kind.value.kind, kind.value.active, kind.value.reason);
      break;
    case "usageRecorded":
      setAttemptUsage(thread, kind.value.usage ?? create(UsageSchema));
      break;
    case "budgetUpdated":
      thread.budget = bounded(kind.value.budget);
      break;
    case "closeRequested":
      setCondition(thread, event, ConditionKind.CLOSING, true, kind.value.reason);
      break;
    case "threadClosed":
      setStatus(thread, event, StatusKind.SHUTDOWN, thread.status?.message, kind.value.reason);
      thread.conditions = [];
      thread.runnerId = "";
      beginAttempt(thread, thread.generation + 1);
      break;
    case "threadResumed": {
      const { generation, status, toolPolicy, grant, sandbox } = kind.value;
      beginAttempt(thread, generation);
      Object.assign(thread, { status, toolPolicy, grant, sandbox });
      break;
    }
    case "approvalResolved":
      // If a slot is free, ThreadAdmitted follows in the same append. After a denial, ThreadClosed follows.
      if (before === StatusKind.AWAITING_APPROVAL && kind.value.decision === ApprovalDecision.GRANTED) {
        thread.turn += 1;
        setStatus(thread, event, StatusKind.QUEUED);
      }
      break;
  }
}

function statusOfOutcome(outcome: TurnOutcome): StatusKind {
  switch (outcome) {
    case TurnOutcome.COMPLETED:
      return StatusKind.COMPLETED;
    case TurnOutcome.ERRORED:
      return StatusKind.ERRORED;
    default:
      return StatusKind.INTERRUPTED;
  }
}

/** Begins an attempt. The usage so far becomes the usage of earlier attempts. */
function beginAttempt(thread: Thread, generation: number): void {
  if (thread.generation === generation) return;
  thread.generation = generation;
  thread.earlierUsage = thread.usage;
}

/** Sets the usage of the current attempt. Telemetry may have reported a part of this usage. */
function setAttemptUsage(thread: Thread, usage: Usage): void {
  const earlier = thread.earlierUsage ?? create(UsageSchema);
  thread.usage = create(UsageSchema, {
    inputTokens: earlier.inputTokens + usage.inputTokens,
    cachedInputTokens: earlier.cachedInputTokens + usage.cachedInputTokens,
    outputTokens: earlier.outputTokens + usage.outputTokens,
    turns: earlier.turns + usage.turns,
    costMicros: earlier.costMicros + usage.costMicros,
    unpricedTokens: earlier.unpricedTokens + usage.unpricedTokens,
  });
}

/** Removes the conditions that an event ends without naming them. */
function endConditions(thread: Thread, kind: Kind): void {
  const isActive = [StatusKind.PENDING_INIT, StatusKind.RUNNING].includes(statusOf(thread));
  thread.conditions = thread.conditions.filter((condition) => {
    switch (condition.kind) {
      case ConditionKind.AWAITING_INPUT:
        return kind.case !== "inputQueued" && kind.case !== "turnDispatched";
      case ConditionKind.UNREACHABLE:
        return isActive && kind.case !== "threadPlaced";
      case ConditionKind.NO_RUNNER:
      case ConditionKind.POLICY_GAP:
        return kind.case !== "threadPlaced";
      default:
        return true;
    }
  });
}

function setStatus(thread: Thread, event: Event, kind: StatusKind, message = "", reason = ""): void {
  thread.status = create(StatusSchema, { kind, message, reason, since: event.time });
  if (kind !== StatusKind.QUEUED) thread.queuePosition = 0;
}

function setCondition(thread: Thread, event: Event, kind: ConditionKind, active: boolean, reason: string): void {
  const others = thread.conditions.filter((condition) => condition.kind !== kind);
  const condition = create(ConditionSchema, { kind, reason, since: event.time });
  thread.conditions = active ? [...others, condition] : others;
}

function spawnedThread(event: Event, spawned: ThreadSpawned): Thread {
  const thread = create(ThreadSchema, {
    sessionId: event.sessionId,
    threadId: event.threadId,
    parentThreadId: spawned.parentThreadId,
    depth: spawned.depth,
    agentType: spawned.agentType,
    agentName: spawned.agentName,
    label: spawned.label,
    alias: spawned.alias,
    threadNote: spawned.threadNote,
    model: spawned.model,
    reasoningEffort: spawned.reasoningEffort,
    origins: spawned.origins,
    provider: spawned.provider,
    sandbox: spawned.sandbox,
    toolPolicy: spawned.toolPolicy,
    source: spawned.source,
    generation: spawned.generation,
    createTime: event.time,
    updateTime: event.time,
    sequence: event.sequence,
    workingDirectory: spawned.workingDirectory,
    edgeManagement: spawned.edgeManagement,
    spawnList: spawned.spawnList,
    grant: spawned.grant,
    closePolicy: spawned.closePolicy,
    wakePolicy: spawned.wakePolicy,
    budget: bounded(spawned.budget),
  });
  setStatus(thread, event, spawned.firstStatus);
  thread.turn = [StatusKind.QUEUED, StatusKind.PENDING_INIT].includes(spawned.firstStatus) ? 1 : 0;
  return thread;
}

/** Returns the budget, or undefined if it limits nothing. */
function bounded(budget: Budget | undefined): Budget | undefined {
  const isBound = budget && (budget.tokens || budget.turns || budget.wallTime || budget.costMicros);
  return isBound ? budget : undefined;
}
