// Threads that wait for a person.

import { ConditionKind, StatusKind, type Thread } from "./messages";
import { statusOf } from "./thread";

const CONDITIONS = new Set([
  ConditionKind.STALLED,
  ConditionKind.UNREACHABLE,
  ConditionKind.NO_RUNNER,
  ConditionKind.AWAITING_TOOL_APPROVAL,
  ConditionKind.BUDGET_EXHAUSTED,
  ConditionKind.AWAITING_INPUT,
]);
const STATUSES = new Set([StatusKind.AWAITING_APPROVAL, StatusKind.ERRORED]);

export interface Attention {
  /** The name of the condition or status. */
  readonly kind: string;
  readonly condition: ConditionKind | undefined;
  readonly reason: string;
  /** Whether the thread waits for an approval. The session has the approval as a separate object. */
  readonly isApproval: boolean;
}

/** Returns the reason why a thread waits for a person: for a decision, an answer, a larger budget or a repair. */
export function attentionOf(thread: Thread): Attention | undefined {
  const condition = thread.conditions.find(({ kind }) => CONDITIONS.has(kind));
  if (condition) {
    return {
      kind: ConditionKind[condition.kind] ?? "",
      condition: condition.kind,
      reason: condition.reason,
      isApproval: condition.kind === ConditionKind.AWAITING_TOOL_APPROVAL,
    };
  }
  const status = statusOf(thread);
  if (!STATUSES.has(status)) return undefined;
  return {
    kind: StatusKind[status] ?? "",
    condition: undefined,
    reason: thread.status?.message ?? "",
    isApproval: status === StatusKind.AWAITING_APPROVAL,
  };
}

/** Returns the next step that ends a condition, or `undefined` if the condition ends by itself. */
export function remedyOf(kind: ConditionKind): string | undefined {
  switch (kind) {
    case ConditionKind.STALLED:
      return "Interrupt the thread, then send it another instruction.";
    case ConditionKind.UNREACHABLE:
      return "The runner is disconnected. The restart policy applies when its lease ends.";
    case ConditionKind.NO_RUNNER:
      return "Attach a runner with the labels that the session requires: troupe run";
    case ConditionKind.AWAITING_TOOL_APPROVAL:
      return "Grant or deny the call.";
    case ConditionKind.BUDGET_EXHAUSTED:
      return "Raise the budget, then send the thread input.";
    case ConditionKind.POLICY_GAP:
      return "The program cannot enforce a part of the policy. The events show which part.";
    case ConditionKind.CONTEXT_LOST:
      return "The program lost the earlier conversation. Send the important facts to the thread again.";
    case ConditionKind.AWAITING_INPUT:
      return "Send the thread an answer.";
    default:
      return undefined;
  }
}
