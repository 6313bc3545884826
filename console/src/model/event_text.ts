// Events as one line of text.

import { plural, shortId } from "../text/format";
import { line } from "../text/sanitize";
import { ApprovalDecision, ConditionKind, GroupState, Mode, StatusKind, TurnOutcome, type Event } from "./messages";

/** Returns the name of an event's kind: `turn started`. */
export function kindOf({ kind }: Event): string {
  return (kind.case ?? "unknown").replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

/** Describes an event, without its kind. */
export function textOf({ kind }: Event): string {
  switch (kind.case) {
    case "sessionUpdated": {
      const { mode, paused } = kind.value;
      return [mode === undefined ? "" : `mode ${Mode[mode]}`, paused === undefined ? "" : paused ? "paused" : "resumed"]
        .filter(Boolean)
        .join(", ");
    }
    case "threadSpawned":
      return line(`${kind.value.agentType} ${kind.value.alias || kind.value.label} ${StatusKind[kind.value.firstStatus]}`);
    case "spawnFailed":
      return line(`${kind.value.agentType}: ${kind.value.message} (${kind.value.reason})`);
    case "threadPlaced":
      return line(`on ${kind.value.runnerId}, attempt ${kind.value.generation}`);
    case "inputQueued":
      return line(`input ${kind.value.number} from ${kind.value.from}`);
    case "turnDispatched":
    case "turnStarted":
      return `turn ${kind.value.turn}`;
    case "inputDelivered":
      return `input ${kind.value.number} in turn ${kind.value.turn}`;
    case "interruptRequested":
      return line(`turn ${kind.value.turn} ${kind.value.reason}`);
    case "turnEnded":
      return line(`turn ${kind.value.turn} ${TurnOutcome[kind.value.outcome]} ${kind.value.reason || kind.value.message}`);
    case "noteSet":
      return line(kind.value.threadNote);
    case "conditionChanged": {
      const { kind: condition, active, reason } = kind.value;
      return line(`${ConditionKind[condition]} ${active ? "began" : "ended"} ${reason}`);
    }
    case "artifactRecorded":
      return line(`${kind.value.kind} ${kind.value.name}`);
    case "toolDenied":
      return line(`${kind.value.tool}, ${plural(kind.value.count, "call")}: ${kind.value.reason}`);
    case "closeRequested":
      return line(`${kind.value.cause} ${kind.value.reason}`);
    case "threadClosed":
      return line(`${kind.value.forced ? "forced" : ""} ${kind.value.reason}`);
    case "handoffSent":
      return line(`to ${shortId(kind.value.handoff?.toThreadId ?? "")} ${kind.value.handoff?.message?.preview ?? ""}`);
    case "edgeCreated":
      return line(`${shortId(kind.value.edge?.fromThreadId ?? "")} to ${shortId(kind.value.edge?.toThreadId ?? "")}`);
    case "approvalRequested":
      return line(kind.value.subject);
    case "approvalResolved":
      return line(`${ApprovalDecision[kind.value.decision]} by ${kind.value.by} ${kind.value.reason}`);
    case "groupCreated":
      return line(`${kind.value.spec?.name ?? ""} with ${plural(kind.value.spec?.itemCount ?? 0, "item")}`);
    case "groupEnding":
    case "groupEnded":
      return line(`${GroupState[kind.value.outcome]} ${kind.value.reason}`);
    default:
      return "";
  }
}
