// The client for browsers against a real pair behind a gateway. Node.js has the same `fetch`; console/e2e has a browser.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import * as troupe from "../src/web.js";
import { Gateway } from "./gateway.js";
import { deadline, inTime, Pair, Relay } from "./pair.js";

/** Starts a pair that requires a token, and a gateway. */
async function start(): Promise<AsyncDisposable & { readonly pair: Pair; readonly gateway: Gateway; readonly token: string }> {
  const pair = await Pair.start();
  const gateway = await Gateway.start(pair.url);
  const token = readFileSync(join(pair.data, "operator.token"), "utf8").trim();
  const stop = async (): Promise<void> => {
    await gateway[Symbol.asyncDispose]();
    await pair[Symbol.asyncDispose]();
  };
  return { pair, gateway, token, [Symbol.asyncDispose]: stop };
}

test("session is opened, followed and closed over gRPC-web", async () => {
  await using services = await start();
  await using client = await troupe.connect({ address: `${services.gateway.url}/`, token: () => services.token });
  await using session = await client.session({ cwd: services.pair.project, approveTools: ["write_file"] });
  const long = "long ".repeat(5_000).trim();
  const call = JSON.stringify({ tool_call: { name: "write_file", args: { path: "a.md", content: "x" } } });
  const thread = await session.spawn("worker", `${call}\nsay: ${long}`);
  const kinds: string[] = [];
  for await (const event of session.events()) {
    kinds.push(event.kind);
    if (event.kind === "approvalRequested") await event.deny("not now");
    if (event.kind === "turnEnded") break;
  }
  assert.ok(kinds.includes("approvalResolved"), kinds.join());
  assert.ok((await thread.result(deadline())).text.endsWith(long));
  assert.deepEqual([...services.gateway.tokens], [`Bearer ${services.token}`]);
  await assert.rejects(session.spawn("no-such-role", "say: hello"), troupe.TemplateNotFoundError);
  await assert.rejects(session.thread(thread.id).result({ signal: AbortSignal.abort(new RangeError()) }), RangeError);
});

test("events continue after a lost connection", async () => {
  await using services = await start();
  await using relay = await Relay.start(services.gateway.url);
  await using client = await troupe.connect({ address: `${relay.url}/api`, token: services.token });
  const session = await client.session();
  const seen: bigint[] = [];
  const following = (async () => {
    for await (const { sequence } of session.events()) seen.push(sequence);
  })();
  for (let round = 0; round < 3; round += 1) {
    const thread = await session.spawn("worker", "say: done");
    relay.drop();
    await thread.result(deadline());
  }
  await (await client.getSession(session.id)).close();
  await inTime(following);
  assert.deepEqual(
    seen,
    seen.map((_, index) => BigInt(index + 1)),
  );
});

test("missing token is an error", async () => {
  await using services = await start();
  await using client = await troupe.connect({ address: services.gateway.url });
  await assert.rejects(client.sessions(), troupe.UnauthenticatedError);
});

test("fetch option is used for calls", async () => {
  await using services = await start();
  const urls: string[] = [];
  const counted: typeof fetch = (input, init) => {
    urls.push(String(input));
    return fetch(input, init);
  };
  await using client = await troupe.connect({ address: services.gateway.url, token: services.token, fetch: counted });
  assert.deepEqual(await client.sessions(), []);
  assert.deepEqual(urls, [`${services.gateway.url}/troupe.supervisor.v1.AgentSupervisorService/ListSessions`]);
});

test("closed client ends its waits", async () => {
  await using services = await start();
  const client = await troupe.connect({ address: services.gateway.url, token: services.token });
  const session = await client.session();
  const waiting = (await session.spawn("worker", "hold")).result();
  const next = session.events({ after: 1_000n }).next();
  await client.close();
  await assert.rejects(inTime(waiting), /the client is closed/);
  await assert.rejects(inTime(next), /the client is closed/);
});

test("invalid addresses and tokens are rejected", async () => {
  for (const address of ["ftp://console.example.org", "console.example.org", "", undefined]) {
    await assert.rejects(troupe.connect(address === undefined ? {} : { address }), troupe.ConfigError, address);
  }
  await assert.rejects(troupe.connect({ address: "http://127.0.0.1:1", token: "two words" }), troupe.ConfigError);
});
