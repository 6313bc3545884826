// Threads that are executed by functions.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import * as troupe from "../src/index.js";
import { ToolVerdict, TranscriptKind } from "../src/gen/troupe/supervisor/v1/transcript_pb.js";
import { agent, type AgentFunction, Runner } from "../src/runner.js";
import { deadline, inTime, Pair, Relay } from "./pair.js";

const labels = { language: "typescript" };
let pair: Pair;
let client: troupe.Client;

beforeEach(async () => {
  pair = await Pair.start("--no-runner");
  client = await pair.connect();
});

afterEach(async () => {
  await client.close();
  await pair[Symbol.asyncDispose]();
});

/** Starts a runner and waits until the supervisor knows it. */
async function attach(
  run: AgentFunction,
  { roles = [] as string[], by = client } = {},
): Promise<{ runner: Runner; running: Promise<void> }> {
  const options = { runnerId: "typescript-test", labels, enforcesTools: true, enforcesReadOnly: true };
  const runner = new Runner(by, [agent(roles, run)], options);
  const running = runner.run();
  running.catch(() => undefined);
  await inTime(runner.attached);
  return { runner, running };
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

test("function executes turns", async () => {
  const { runner, running } = await attach(
    async (task) => {
      const turns = Number(task.state["turns"] ?? 0) + 1;
      task.state["turns"] = turns;
      task.usage({ inputTokens: 10, outputTokens: 5 });
      task.activity("counting");
      return `${task.agentType} ${task.turn} ${turns}: ${task.message}`;
    },
    { roles: ["reviewer"] },
  );
  {
    await using session = await client.session({ runnerLabels: labels });
    const thread = await session.spawn("reviewer", "hello");
    assert.equal((await thread.result(deadline())).text, "reviewer 1 1: hello");
    await thread.send("again");
    assert.equal((await thread.result(deadline())).text, "reviewer 2 2: again");
    const { usage } = await thread.info();
    assert.deepEqual([usage?.inputTokens, usage?.outputTokens], [20n, 10n]);
    const other = await session.spawn("explorer", "hello");
    await assert.rejects(other.result(deadline()), (error) => {
      assert.ok(error instanceof troupe.AgentFailedError);
      return error.message.includes('no agent for the role "explorer"');
    });
  }
  runner.drain();
  await inTime(running);
});

test("failure and interrupt end the turn", async () => {
  const { runner, running } = await attach(async (task) => {
    if (task.message === "fail") throw new Error("there is no model");
    // A function that ignores its signal does not delay the end of its turn.
    if (task.message === "hold") await new Promise(() => undefined);
    return task.message;
  });
  {
    await using session = await client.session({ runnerLabels: labels });
    const failed = await session.spawn("worker", "fail");
    await assert.rejects(failed.result(deadline()), /there is no model/);
    const held = await session.spawn("worker", "hold");
    for await (const event of session.events()) if (event.kind === "turnStarted" && event.threadId === held.id) break;
    await held.interrupt("seen enough");
    await assert.rejects(held.result(deadline()), troupe.AgentInterruptedError);
    await held.send("go on");
    assert.equal((await held.result(deadline())).text, "go on");
  }
  runner.drain();
  await inTime(running);
});

test("artifacts are stored and tools are authorized", async () => {
  const large = Buffer.alloc(4 * 1024 * 1024, "large ");
  const { runner, running } = await attach(async (task) => {
    task.artifact("report.txt", Buffer.from("all is well"));
    task.artifact("large.bin", large, { kind: "data", mediaType: "application/octet-stream" });
    const denied = await task.authorize("apply_patch", { patch: "x" });
    const asked = await task.authorize("read_file", { path: "README.md" });
    return `${denied.allowed} ${asked.allowed}`;
  });
  {
    await using session = await client.session({ approveTools: ["read_file"], runnerLabels: labels });
    const thread = await session.spawn("explorer", "work");
    for await (const event of session.events()) {
      if (event.kind === "approvalRequested") await event.grant();
      if (event.kind === "turnEnded") break;
    }
    assert.equal((await thread.result(deadline())).text, "false true");
    const [report, data] = await thread.artifacts();
    assert.equal(Buffer.from((await report?.read()) ?? []).toString(), "all is well");
    assert.ok(large.equals((await data?.read()) ?? Buffer.alloc(0)));
  }
  runner.drain();
  await inTime(running);
});

test("transcript has the work of the function", async () => {
  const { runner, running } = await attach(async (task) => {
    await task.authorize("apply_patch", { patch: "x" });
    task.record("reasoning", "I need no patch.");
    return "done";
  });
  {
    await using session = await client.session({ runnerLabels: labels });
    const thread = await session.spawn("explorer", "look");
    await thread.result(deadline());
    const entries = await collect(thread.transcript());
    assert.deepEqual(
      entries.map(({ kind, text }) => [kind, text]),
      [
        [TranscriptKind.INPUT, "look"],
        [TranscriptKind.TOOL_CALL, '{"patch":"x"}'],
        [TranscriptKind.REASONING, "I need no patch."],
        [TranscriptKind.MESSAGE, "done"],
      ],
    );
    assert.equal(entries[1]?.toolCall?.verdict, ToolVerdict.DENIED);
  }
  runner.drain();
  await inTime(running);
});

test("task spawns children", async () => {
  const { runner, running } = await attach(async (task) => {
    if (task.agentType === "explorer") return "found";
    await using own = await task.connect();
    const session = await own.getSession(task.sessionId);
    const child = await session.spawn("explorer", "look", { parent: task.threadId });
    return `led: ${(await child.result(deadline())).text}`;
  });
  {
    await using session = await client.session({ runnerLabels: labels });
    const thread = await session.spawn("orchestrator", "lead");
    assert.equal((await thread.result(deadline())).text, "led: found");
  }
  runner.drain();
  await inTime(running);
});

test("turn survives kill and lost stream", async () => {
  let calls = 0;
  let open: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => {
    open = resolve;
  });
  await using relay = await Relay.start(pair.url);
  await using through = await pair.connect({ address: relay.url });
  const work = async (): Promise<string> => {
    calls += 1;
    await gate;
    return "done";
  };
  const { runner, running } = await attach(work, { by: through });
  let closed: troupe.Session;
  {
    await using session = await client.session({ runnerLabels: labels });
    closed = session;
    const thread = await session.spawn("worker", "work");
    for await (const event of session.events()) if (event.kind === "turnStarted") break;
    relay.drop();
    await pair.send("SIGKILL");
    open();
    await pair.start();
    assert.equal((await thread.result(deadline())).text, "done");
    const texts = (await collect(thread.transcript())).map(({ text }) => text);
    assert.deepEqual(texts, ["work", "done"]);
  }
  const ended = (await collect(closed.events())).filter(({ kind }) => kind === "turnEnded");
  assert.deepEqual([ended.length, calls], [1, 1]);
  runner.drain();
  await inTime(running);
});
