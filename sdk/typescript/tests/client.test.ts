// The client against a real pair with the sample agent, which calls no model.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Code } from "@connectrpc/connect";
import { z } from "zod";

import * as troupe from "../src/index.js";
import { ApprovalDecision } from "../src/gen/troupe/supervisor/v1/event_pb.js";
import { StatusKind } from "../src/gen/troupe/supervisor/v1/thread_pb.js";
import { deadline, inTime, Pair } from "./pair.js";

let pair: Pair;
let client: troupe.Client;

before(async () => {
  pair = await Pair.start();
  client = await pair.connect();
});

after(async () => {
  await client.close();
  await pair[Symbol.asyncDispose]();
});

test("result has the last message", async () => {
  let closed: troupe.Session;
  {
    await using session = await client.session({ cwd: pair.project, labels: { test: "result" } });
    closed = session;
    const thread = await session.spawn("worker", "say: it is done");
    const { text, kind } = await thread.result(deadline());
    assert.deepEqual([text, kind], ["it is done", "COMPLETED"]);
    await thread.send("say: and again");
    assert.equal((await thread.result(deadline())).text, "and again");
    assert.deepEqual(
      (await session.threads()).map(({ threadId }) => threadId),
      [thread.id],
    );
    const [found] = await client.sessions({ labels: { test: "result" } });
    assert.equal(found?.sessionId, session.id);
  }
  assert.ok((await closed.info()).closed);
});

test("long message is read in full", async () => {
  await using session = await client.session();
  const text = "long ".repeat(5_000).trim();
  const thread = await session.spawn("", `say: ${text}`);
  assert.equal((await thread.result(deadline())).text, text);
});

test("waitAll keeps the order and failed threads", async () => {
  await using session = await client.session();
  const held = await session.spawn("worker", "hold");
  const done = await session.spawn("worker", "say: done");
  for await (const { threadId } of session.asCompleted([held, done], deadline())) {
    assert.equal(threadId, done.id);
    break;
  }
  await held.interrupt("seen enough");
  const results = await session.waitAll([held, done], deadline());
  assert.deepEqual(
    results.map(({ kind }) => kind),
    ["INTERRUPTED", "COMPLETED"],
  );
  await assert.rejects(held.result(deadline()), (error) => {
    assert.ok(error instanceof troupe.AgentInterruptedError);
    return error.result.status.reason === "seen enough";
  });
  await held.close();
  await assert.rejects(held.result(deadline()), troupe.AgentClosedError);
  await held.resume();
  await held.send("say: back");
  assert.equal((await held.result(deadline())).text, "back");
});

test("results match their schema", async () => {
  await using session = await client.session();
  const schema = { type: "object", required: ["path"], properties: { path: { type: "string" } } };
  const thread = await session.spawn("worker", 'say: {"path": "a.ts"}', { schema });
  assert.deepEqual((await thread.result(deadline())).value, { path: "a.ts" });
  await thread.send("say: none", { schema: { type: "integer" } });
  await assert.rejects(thread.result(deadline()), (error) => {
    assert.ok(error instanceof troupe.AgentFailedError);
    return error.result.text.includes("RESULT_INVALID") && error.result.value === undefined;
  });
  await assert.rejects(session.spawn("worker", "say: x", { schema: { type: "no such type" } }), (error) => {
    assert.ok(error instanceof troupe.ServiceError);
    return error.code === Code.InvalidArgument;
  });
});

/** A finding whose path must be a file of TypeScript. The JSON Schema does not contain this condition. */
const Finding = z.object({
  path: z.string().refine((path) => path.endsWith(".ts"), "no TypeScript"),
  line: z.string().transform(Number),
});

test("results have the type of their schema", async () => {
  await using session = await client.session();
  const thread = await session.spawn("worker", 'say: {"path": "a.ts", "line": "3"}', { schema: Finding });
  const { value }: { value: { path: string; line: number } } = await thread.result(deadline());
  assert.deepEqual(value, { path: "a.ts", line: 3 });
  // Another program has the id only.
  const found = await session.thread(thread.id).result({ schema: Finding, ...deadline() });
  assert.equal(found.value.line + 1, 4);
  await thread.send('say: {"path": "a.py", "line": "3"}', { schema: Finding });
  await assert.rejects(thread.result(deadline()), (error) => {
    assert.ok(error instanceof troupe.ResultMismatchError);
    return error.message.endsWith("schema: path: no TypeScript") && error.threadId === thread.id;
  });
  const untyped = await session.spawn("worker", "say: text");
  await assert.rejects(untyped.result({ schema: Finding, ...deadline() }), troupe.ResultMismatchError);
});

test("rows have the type of their schema", async () => {
  await using session = await client.session();
  const message = 'say: {{"path": "{item}", "line": "1"}';
  const rows = await session.map("worker", ["a.ts", "b.py"], message, { schema: Finding, ...deadline() });
  const paths: string[] = rows.filter((row) => row.state === "SUCCEEDED").map(({ value }) => value.path);
  assert.deepEqual(paths, ["a.ts"]);
  assert.deepEqual([rows[1]?.state, rows[1]?.value], ["FAILED", undefined]);
  assert.match(rows[1]?.error ?? "", /path: no TypeScript/);
});

test("map returns a row for each item", async () => {
  await using session = await client.session({ maxThreads: 4 });
  const paths = Array.from({ length: 12 }, (_, index) => `src/${index}.ts`);
  const schema = { type: "object", required: ["path"] };
  const rows = await session.map("worker", paths, 'say: {{"path": "{item}"}', { limit: 3, schema, ...deadline() });
  assert.deepEqual(
    rows.map(({ item, state, value }) => [item, state, value]),
    paths.map((path) => [path, "SUCCEEDED", { path }]),
  );
  const named = [{ what: "bugs", place: "docs" }];
  const [row] = await session.map("worker", named, "say: {what} in {place}", deadline());
  assert.deepEqual([row?.text, row?.value, row?.item], ["bugs in docs", undefined, named[0]]);
  const failed = await session.map("worker", ["a", "b"], 'say: "{item}"', { schema: { const: "a" }, ...deadline() });
  assert.deepEqual(
    failed.map(({ state }) => state),
    ["SUCCEEDED", "FAILED"],
  );
  assert.match(failed[1]?.error ?? "", /RESULT_INVALID/);
  await assert.rejects(session.map("worker", ["hold"], "{item}", { signal: AbortSignal.timeout(300) }), {
    name: "TimeoutError",
  });
});

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

test("transcript is read and followed", async () => {
  await using session = await client.session();
  const thread = await session.spawn("worker", "say: one");
  await thread.result(deadline());
  const first = await collect(thread.transcript());
  assert.deepEqual(
    first.map(({ number }) => Number(number)),
    first.map((_, index) => index + 1),
  );
  assert.ok(first.some(({ text }) => text === "one"));
  const following = collect(thread.transcript({ after: BigInt(first.length), follow: true, ...deadline() }));
  await thread.send("say: two");
  await thread.result(deadline());
  await thread.close();
  const texts = (await inTime(following)).map(({ text }) => text);
  assert.ok(texts.includes("two") && !texts.includes("one"), texts.join());
});

test("signal ends a wait", async () => {
  await using session = await client.session();
  const held = await session.spawn("worker", "hold");
  await assert.rejects(held.result({ signal: AbortSignal.timeout(300) }), { name: "TimeoutError" });
});

test("events are complete and end with the session", async () => {
  const session = await client.session();
  const other = await client.getSession(session.id);
  const seen: troupe.SessionEvent[] = [];
  const following = (async () => {
    for await (const event of other.events()) seen.push(event);
  })();
  const thread = await session.spawn("worker", "say: done");
  await thread.result(deadline());
  await session.close();
  await inTime(following);
  const numbers = seen.map(({ sequence }) => Number(sequence));
  assert.deepEqual(numbers, Array.from(numbers, (_, index) => index + 1));
  assert.equal(seen.at(-1)?.kind, "sessionClosed");
  const kinds = seen.filter(({ threadId }) => threadId === thread.id).map(({ kind }) => kind);
  assert.equal(kinds[0], "threadSpawned");
  assert.ok(kinds.indexOf("turnStarted") < kinds.indexOf("turnEnded"));
  const again: number[] = [];
  for await (const { sequence } of other.events({ after: 3n })) again.push(Number(sequence));
  assert.deepEqual(again, numbers.slice(3));
  for await (const event of other.events({ after: BigInt(numbers.length) })) assert.fail(event.kind);
});

test("closing a session ends its streams", async () => {
  const session = await client.session();
  const events = session.events();
  await events.next();
  await events.next();
  const pending = events.next();
  await session.close();
  assert.equal((await inTime(pending)).done, true);
});

test("error in the block closes the session", async () => {
  let session: troupe.Session | undefined;
  await assert.rejects(async () => {
    await using opened = await client.session();
    session = opened;
    throw new RangeError("of the block");
  }, RangeError);
  assert.ok((await session?.info())?.closed);
});

test("errors have a class for each reason", async () => {
  let closed: troupe.Session;
  {
    await using session = await client.session({ maxDepth: 1, maxThreads: 1 });
    closed = session;
    const thread = await session.spawn("worker", "hold");
    await assert.rejects(thread.spawn("worker", "say: deeper"), (error) => {
      assert.ok(error instanceof troupe.DepthLimitError);
      assert.equal(error.name, "DepthLimitError");
      return error.code === Code.FailedPrecondition && !error.isTransient;
    });
    await assert.rejects(session.spawn("worker", "say: one more"), troupe.ThreadLimitError);
    const queued = await session.spawn("worker", "say: after the other", { queue: true });
    assert.equal((await queued.info()).status?.kind, StatusKind.QUEUED);
    await assert.rejects(session.spawn("no-such-role", "say: hello"), (error) => {
      assert.ok(error instanceof troupe.TemplateNotFoundError);
      return Object.values(error.metadata).includes("no-such-role");
    });
    const unknown = session.thread("0190a5a4-6c1e-7b3c-8f00-0242ac120002");
    await assert.rejects(unknown.result(deadline()), troupe.ThreadNotFoundError);
  }
  await assert.rejects(closed.spawn("worker", "say: too late"), troupe.ServiceError);
});

test("request id of the caller is kept", async () => {
  await using session = await client.session();
  const options = { request: { requestId: "once" } };
  const first = await session.spawn("worker", "say: once", options);
  assert.equal((await session.spawn("worker", "say: once", options)).id, first.id);
  await assert.rejects(session.spawn("worker", "say: something else", options), troupe.RequestIdReusedError);
});

test("operator decides approvals", async () => {
  const call = JSON.stringify({
    tool_call: { name: "spawn_agent", args: { agent_type: "explorer", message: "say: found" } },
  });
  await using session = await client.session({ approveTools: ["spawn_agent"] });
  const lead = await session.spawn("orchestrator", `${call}\n${call}\nsay: led`);
  let requests = 0;
  for await (const event of session.events()) {
    if (event.kind === "approvalRequested") {
      requests += 1;
      if (requests === 1) {
        assert.equal((await event.grant("go on")).proto.reason, "go on");
      } else {
        const [waiting] = await session.approvals();
        assert.equal(waiting?.id, event.data.approvalId);
        await waiting?.deny("once is enough");
      }
    }
    if (event.kind === "turnEnded" && event.threadId === lead.id) break;
  }
  assert.match((await lead.result(deadline())).text, /led/);
  assert.deepEqual(await session.approvals(), []);
  assert.deepEqual(
    (await session.approvals({ includeResolved: true })).map(({ proto }) => proto.decision),
    [ApprovalDecision.GRANTED, ApprovalDecision.DENIED],
  );
});

test("budget stops a thread", async () => {
  await using session = await client.session({ budget: { tokens: 1_000n } });
  const thread = await session.spawn("worker", "say: one", { budget: { turns: 1 } });
  await thread.result(deadline());
  await assert.rejects(thread.send("say: two"), troupe.BudgetExhaustedError);
  await thread.setBudget({ turns: 2 });
  await thread.send("say: two");
  assert.equal((await thread.result(deadline())).text, "two");
  await session.setBudget({ tokens: 5_000, wallTimeMs: 60_000 });
  const { budget } = await session.quota();
  assert.deepEqual([budget?.tokens, budget?.wallTime?.seconds], [5_000n, 60n]);
});

test("stub reaches every method", async () => {
  await using session = await client.session();
  await session.pause();
  assert.equal((await client.stub.getQuota({ sessionId: session.id })).quota?.openThreads, 1);
  await assert.rejects(session.spawn("worker", "say: hello"), troupe.SessionPausedError);
});
