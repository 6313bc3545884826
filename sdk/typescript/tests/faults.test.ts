// The client while the service is killed, does not answer, or the connection is lost.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import type { TranscriptEntry } from "../src/gen/troupe/supervisor/v1/transcript_pb.js";
import * as troupe from "../src/index.js";
import { deadline, inTime, Pair, Relay } from "./pair.js";

/** Returns the sequence numbers of a closed session. */
async function numbers(session: troupe.Session): Promise<bigint[]> {
  const found: bigint[] = [];
  for await (const { sequence } of session.events()) found.push(sequence);
  return found;
}

test("stream survives kill and restart", async () => {
  await using pair = await Pair.start();
  await using client = await pair.connect();
  const session = await client.session();
  const other = await client.getSession(session.id);
  const seen: troupe.SessionEvent[] = [];
  const following = (async () => {
    for await (const event of other.events()) seen.push(event);
  })();
  const threads: troupe.Thread[] = [];
  for (let round = 0; round < 3; round += 1) {
    for (let number = 0; number < 5; number += 1) {
      threads.push(await session.spawn("worker", `say: ${number}`, { queue: true }));
    }
    await pair.send("SIGKILL");
    const spawning = session.spawn("worker", "say: during the restart", { queue: true });
    await pair.start();
    threads.push(await inTime(spawning));
  }
  assert.equal((await session.waitAll(threads, deadline())).length, 18);
  await session.close();
  await inTime(following);
  const found = seen.map(({ sequence }) => sequence);
  assert.deepEqual(found, Array.from(found, (_, index) => BigInt(index + 1)));
  assert.deepEqual(found, await numbers(session));
  assert.equal(seen.at(-1)?.kind, "sessionClosed");
  // The root and 18 threads: no spawn was lost, none was made twice.
  assert.equal(seen.filter(({ kind }) => kind === "threadSpawned").length, 19);
});

test("result survives kill and restart", async () => {
  await using pair = await Pair.start();
  await using client = await pair.connect();
  await using session = await client.session();
  const thread = await session.spawn("worker", "hold");
  // Wait for the start of the turn: a turn that starts after the restart would hold.
  for await (const { kind } of session.events()) if (kind === "turnStarted") break;
  const waiting = assert.rejects(thread.result(deadline()), troupe.AgentError);
  await pair.send("SIGKILL");
  await pair.start();
  await inTime(waiting);
});

test("retry after a lost response has no second effect", async () => {
  await using pair = await Pair.start();
  await using relay = await Relay.start(pair.url);
  await using client = await pair.connect({ address: relay.url });
  await using direct = await pair.connect();
  const session = await client.session();
  relay.withholds = true;
  let isDone = false;
  const spawning = session.spawn("worker", "say: once").finally(() => (isDone = true));
  let spawned = 0;
  for await (const { kind } of (await direct.getSession(session.id)).events()) {
    if (kind === "threadSpawned") spawned += 1;
    if (spawned === 2) break;
  }
  // The spawn is durable, and its response is lost.
  assert.ok(!isDone);
  relay.withholds = false;
  relay.drop();
  const thread = await inTime(spawning);
  assert.deepEqual(
    (await session.threads()).map(({ threadId }) => threadId),
    [thread.id],
  );
  await session.close();
  assert.ok(relay.connections >= 2);
});

test("stream survives lost connections", async () => {
  await using pair = await Pair.start();
  await using relay = await Relay.start(pair.url);
  await using client = await pair.connect({ address: relay.url });
  await using direct = await pair.connect();
  const session = await direct.session();
  const events = (await client.getSession(session.id)).events();
  const seen: bigint[] = [];
  for (let round = 0; round < 5; round += 1) {
    const [first] = await Promise.all(["a", "b", "c"].map((name) => session.spawn("worker", `say: ${name}`, { queue: true })));
    // The events of the next round come after the drop, so they need a new connection.
    for (let last = ""; last !== first?.id; ) {
      const { value } = await inTime(events.next());
      assert.ok(value);
      seen.push(value.sequence);
      last = value.kind === "threadSpawned" ? value.threadId : "";
    }
    relay.drop();
  }
  await session.close();
  for await (const { sequence } of events) seen.push(sequence);
  assert.deepEqual(seen, await numbers(session));
  assert.ok(relay.connections >= 5);
});

test("followed transcript survives kill and lost connections", async () => {
  await using pair = await Pair.start();
  await using relay = await Relay.start(pair.url);
  await using client = await pair.connect({ address: relay.url });
  await using direct = await pair.connect();
  await using session = await direct.session();
  const thread = await session.spawn("worker", "say: first");
  const following = (await client.getSession(session.id)).thread(thread.id).transcript({ follow: true, ...deadline() });
  const seen: TranscriptEntry[] = [];
  for (let round = 0; round < 6; round += 1) {
    const message = `say: round ${round}`;
    await thread.send(message, { queue: true });
    // The disturbance is between this entry and the others of the turn.
    while (seen.at(-1)?.text !== message) {
      const { value } = await inTime(following.next());
      assert.ok(value);
      seen.push(value);
    }
    relay.drop();
    if (round % 2 === 1) {
      await pair.send("SIGKILL");
      await pair.start();
    }
    await session.waitAll([thread], deadline());
  }
  await thread.close();
  for await (const entry of following) seen.push(entry);
  const stored: TranscriptEntry[] = [];
  for await (const entry of thread.transcript()) stored.push(entry);
  assert.deepEqual(seen, stored);
  assert.deepEqual(
    stored.map(({ number }) => number),
    stored.map((_, index) => BigInt(index + 1)),
  );
  assert.ok(relay.connections > 6);
});

test("closed client ends its streams and waits", async () => {
  await using pair = await Pair.start();
  const client = await pair.connect();
  const session = await client.session();
  const thread = await session.spawn("worker", "hold");
  const following = (async () => {
    for await (const { kind } of session.events()) if (kind === "sessionClosed") return;
  })();
  const waits: Promise<unknown>[] = [thread.result(), following];
  const ended = waits.map((wait) => assert.rejects(inTime(wait), /the client is closed/));
  await client.close();
  await Promise.all(ended);
});

test("call ends at its deadline", async () => {
  await using pair = await Pair.start();
  await using client = await pair.connect();
  await using session = await client.session();
  const thread = await session.spawn("worker", "hold");
  await pair.send("SIGSTOP");
  const call = client.stub.getSession({ sessionId: session.id }, { timeoutMs: 500 });
  await assert.rejects(inTime(call), troupe.DeadlineExceededError);
  await assert.rejects(inTime(thread.result({ signal: AbortSignal.timeout(500) })), { name: "TimeoutError" });
  await pair.send("SIGCONT");
});

test("unreachable service is an error", async () => {
  await using pair = await Pair.start();
  await using client = await pair.connect({ retry: { attempts: 3, initialDelayMs: 50 }, reconnectTimeoutMs: 500 });
  const session = await client.session();
  const events = session.events();
  await events.next();
  await events.next();
  await pair.send("SIGKILL");
  await assert.rejects(inTime(session.spawn("worker", "say: hello")), (error) => {
    assert.ok(error instanceof troupe.ServiceError);
    return error.isTransient && error.reason === "";
  });
  await assert.rejects(inTime(events.next()), troupe.ServiceError);
});

test("wrong token is rejected, and a token file is read again", async () => {
  await using pair = await Pair.start();
  const tokenFile = join(pair.directory, "token");
  writeFileSync(tokenFile, "wrong\n");
  await using client = await troupe.connect({ address: pair.url, tokenFile });
  await assert.rejects(client.sessions(), troupe.UnauthenticatedError);
  writeFileSync(`${tokenFile}.new`, readFileSync(join(pair.data, "operator.token")));
  renameSync(`${tokenFile}.new`, tokenFile);
  assert.deepEqual(await client.sessions(), []);
});

test("found token of another pair is left out", async () => {
  await using pair = await Pair.start("--trust-loopback");
  await using other = await Pair.start();
  await using client = await troupe.connect({ address: pair.url, dataDir: other.data });
  await using session = await client.session();
  const first = await session.events().next();
  assert.equal(first.value?.kind, "sessionOpened");
});

test("connection over TLS", async () => {
  await using pair = await Pair.start();
  const [certificate, key] = [join(pair.directory, "certificate.pem"), join(pair.directory, "key.pem")];
  const request = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=troupe-sdk";
  const names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate];
  execFileSync("openssl", [...request.split(" "), ...names], { stdio: "ignore" });
  const tls = { cert: readFileSync(certificate), key: readFileSync(key), ALPNProtocols: ["h2"] };
  await using relay = await Relay.start(pair.url, tls);
  await using client = await pair.connect({ address: relay.url, ca: certificate });
  assert.deepEqual(await client.sessions(), []);
  await using distrustful = await pair.connect({ address: relay.url, retry: { attempts: 1 } });
  await assert.rejects(distrustful.sessions(), troupe.ServiceError);
});
