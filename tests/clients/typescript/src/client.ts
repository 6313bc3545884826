// The scenario of a client, from the catalogue to the last event. It prints every step and returns its observations,
// which tests/client.test.ts checks.

import { randomUUID } from "node:crypto";

import { ClientError, Status } from "nice-grpc";

import type { Event } from "../generated/troupe/supervisor/v1/event.js";
import { StatusKind } from "../generated/troupe/supervisor/v1/thread.js";
import { Reader } from "./reader.js";
import { type Refusal, refusalOf } from "./refusal.js";
import { say } from "./say.js";
import { type Pair, Troupe } from "./troupe.js";
import { Watcher } from "./watcher.js";

export const MAX_DEPTH = 2;

/** The observations of the client. */
export interface Story {
  readonly agents: readonly string[];
  /** The parent of each thread. The root's parent is empty. */
  readonly parents: ReadonlyMap<string, string>;
  /** The sequence of the snapshot. */
  readonly snapshot: bigint | undefined;
  readonly events: readonly Event[];
  /** The position at each cut of the stream. */
  readonly cuts: readonly bigint[];
  /** The number of opened streams. */
  readonly streams: number;
  readonly refusal: Refusal;
}

/** A session and its root. */
interface Opened {
  readonly session: string;
  readonly root: string;
}

/** Runs the whole scenario. */
export async function runScenario(pair: Pair): Promise<Story> {
  const troupe = new Troupe(pair);
  const agents = await listAgents(troupe);
  const { session, root } = await openSession(troupe);
  const watcher = new Watcher(troupe, session);
  const reader = new Reader(watcher);
  try {
    await reader.until(({ message }) => message?.$case === "snapshot" && message.value.last);
    const snapshot = watcher.position;
    const lead = await spawn(troupe, session, root, "orchestrator", "Lead the search.\nhold");
    await reader.untilEvent((event) => event.threadId === lead && event.kind?.$case === "turnStarted");

    // Two threads complete their turns without a watcher.
    reader.cut();
    const scouts = [
      await spawn(troupe, session, lead, "explorer", "Look through the tests."),
      await spawn(troupe, session, lead, "explorer", "Look through the docs."),
    ] as const;
    await settled(troupe, scouts);

    // Cuts the stream again, in the middle of the missed events.
    await reader.untilEvent((event) => event.threadId === scouts[0]);
    reader.cut();

    const refusal = await refusedDeeper(troupe, session, scouts[0]);
    await close(troupe, session);
    await reader.untilEvent((event) => event.kind?.$case === "sessionClosed");

    const parents = new Map([[root, ""], [lead, root], [scouts[0], lead], [scouts[1], lead]]);
    const { events, cuts } = reader;
    return { agents, parents, snapshot, events, cuts, streams: watcher.streams, refusal };
  } finally {
    watcher.close();
    troupe.close();
  }
}

/** Returns the roles that can be spawned in the project: the first page, with up to 500 roles. */
async function listAgents(troupe: Troupe): Promise<string[]> {
  const { agents } = await troupe.registry.listAgents({ cwd: troupe.project, allowPartial: true });
  const names = agents.map((agent) => agent.agentType);
  say("agents", names.join(", "));
  return names;
}

/** Opens a session whose root is this client itself. The root has no input, so no runner executes it. */
async function openSession(troupe: Troupe): Promise<Opened> {
  const { session } = await troupe.supervisor.createSession({
    // Because of the id, a retry opens no second session.
    requestId: randomUUID(),
    cwd: troupe.project,
    limits: { maxDepth: MAX_DEPTH },
    labels: { client: "typescript" },
  });
  if (!session) throw new Error("the response of CreateSession has no session");
  say("session", session.sessionId);
  return { session: session.sessionId, root: session.rootThreadId };
}

/** Spawns a thread. It is durable when the call returns, but it has not completed its turn. */
async function spawn(
  troupe: Troupe,
  sessionId: string,
  parentThreadId: string,
  agentType: string,
  message: string,
): Promise<string> {
  const { thread } = await troupe.supervisor.spawnAgent({
    requestId: randomUUID(),
    sessionId,
    parentThreadId,
    agentType,
    message,
  });
  if (!thread) throw new Error("the response of SpawnAgent has no thread");
  say("spawned", "  ".repeat(thread.depth) + agentType, thread.threadId);
  return thread.threadId;
}

/** Waits until all threads are settled. Each call returns as soon as one of them is settled. */
async function settled(troupe: Troupe, threads: readonly string[]): Promise<void> {
  const waiting = new Set(threads);
  while (waiting.size > 0) {
    const { statuses, timedOut } = await troupe.supervisor.waitAgents({
      threadIds: [...waiting],
      timeout: { seconds: 30n },
    });
    if (timedOut) throw new Error(`not settled: ${[...waiting].join(", ")}`);
    for (const { threadId, status } of statuses) {
      waiting.delete(threadId);
      say("settled", threadId, StatusKind[status?.kind ?? 0] ?? "", status?.message ?? "");
    }
  }
}

/** Tries a spawn below the maximum depth and returns the error. */
async function refusedDeeper(troupe: Troupe, session: string, parent: string): Promise<Refusal> {
  try {
    await spawn(troupe, session, parent, "explorer", "Look deeper.");
  } catch (error) {
    if (!(error instanceof ClientError)) throw error;
    const refusal = refusalOf(error);
    say("refused", Status[refusal.code], refusal.reason, "-", refusal.message);
    return refusal;
  }
  throw new Error(`a thread below depth ${MAX_DEPTH} was spawned`);
}

/** Closes the session and returns when all of its threads are closed. */
async function close(troupe: Troupe, sessionId: string): Promise<void> {
  const { session } = await troupe.supervisor.closeSession({ requestId: randomUUID(), sessionId, wait: true });
  say("closed", `${session?.closed}`);
}
