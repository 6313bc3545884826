// The calls that change a session. Each call returns its result as a text for people. A caller that can repeat a call
// passes the request id.

import { ApprovalDecision, Mode, OnLimit, StatusKind, type Approval, type Budget, type Thread } from "../model/messages";
import { statusOf } from "../model/thread";
import { plural, shortId } from "../text/format";
import { requestId, supervisor } from "./clients";

export async function decide(approval: Approval, grant: boolean, reason: string): Promise<string> {
  const { sessionId, approvalId } = approval;
  const answer = await supervisor.resolveApproval({ requestId: requestId(), sessionId, approvalId, grant, reason });
  const decision = answer.approval?.decision ?? ApprovalDecision.UNSPECIFIED;
  const text = `approval ${shortId(approvalId)}: ${ApprovalDecision[decision]}`;
  if (decision !== (grant ? ApprovalDecision.GRANTED : ApprovalDecision.DENIED)) throw new Error(text);
  return text;
}

/** Sends input. With `steer`, the running turn receives it. */
export async function send(id: string, { sessionId, threadId }: Thread, message: string, steer: boolean): Promise<string> {
  const request = { requestId: id, sessionId, threadId, message, steer, onLimit: OnLimit.QUEUE };
  const { inputNumber, queuePosition } = await supervisor.sendInput(request);
  if (queuePosition > 0) return `sent input ${inputNumber}; place ${queuePosition} in the queue`;
  return steer ? `sent input ${inputNumber} to the running turn` : `sent input ${inputNumber}`;
}

/** Spawns an agent below a thread. */
export async function spawn(
  id: string,
  parent: Thread,
  agentType: string,
  agentName: string,
  message: string,
): Promise<string> {
  const { thread, queuePosition } = await supervisor.spawnAgent({
    requestId: id,
    sessionId: parent.sessionId,
    parentThreadId: parent.threadId,
    agentType,
    agentName,
    message,
    onLimit: OnLimit.QUEUE,
  });
  const place = queuePosition > 0 ? `; place ${queuePosition} in the queue` : "";
  return `spawned ${agentType} ${shortId(thread?.threadId ?? "")}${place}`;
}

/**
 * Interrupts a thread and its descendants. Only the thread's turn that the page shows is interrupted, not a newer one.
 */
export async function interrupt(id: string, thread: Thread): Promise<string> {
  const { sessionId, threadId, turn } = thread;
  const answer = await supervisor.interruptAgent({
    requestId: id,
    sessionId,
    threadId,
    reason: "interrupted in the console",
    ...(turn > 0 ? { turn } : {}),
  });
  const { length } = answer.interruptedThreadIds;
  return length ? `${plural(length, "thread")} interrupted` : "nothing was interrupted: the turn on the page has ended";
}

export async function close(id: string, { sessionId, threadId }: Thread): Promise<string> {
  await supervisor.closeAgent({ requestId: id, sessionId, threadId, reason: "closed in the console" });
  return `thread ${shortId(threadId)} is closing`;
}

export async function closeSession(id: string, sessionId: string): Promise<string> {
  await supervisor.closeSession({ requestId: id, sessionId });
  return `session ${shortId(sessionId)} is closing`;
}

export async function reopen({ sessionId, threadId }: Thread): Promise<string> {
  const request = { requestId: requestId(), sessionId, threadId, onLimit: OnLimit.REFUSE };
  const { thread } = await supervisor.resumeAgent(request);
  const status = thread ? StatusKind[statusOf(thread)] : "";
  return `thread ${shortId(threadId)} is open: ${status}`;
}

export async function pause(sessionId: string, paused: boolean): Promise<string> {
  await supervisor.updateSession({ requestId: requestId(), sessionId, paused });
  return `session ${shortId(sessionId)} ${paused ? "paused" : "resumed"}`;
}

export async function setMode(id: string, sessionId: string, mode: Mode): Promise<string> {
  await supervisor.updateSession({ requestId: id, sessionId, mode });
  return `session ${shortId(sessionId)}: ${Mode[mode]}`;
}

export async function setBudget(id: string, { sessionId, threadId }: Thread, budget: Budget): Promise<string> {
  await supervisor.updateThreadBudget({ requestId: id, sessionId, threadId, budget });
  return `thread ${shortId(threadId)} has a new budget`;
}
