// The SDK for browsers in a page at the origin of the console, as behind a proxy that serves both.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import type * as Sdk from "@troupe/client/web";

import { bundle } from "./bundle";
import { expect, test, type Page } from "./test";
import { toolCall } from "./world";

const SDK = "/sdk.js";
const REPOSITORY = fileURLToPath(new URL("../..", import.meta.url));

/** Serves modules as files at the origin of the console. They are subject to its content security policy. */
async function serve(page: Page, origin: string, files: Readonly<Record<string, string>>): Promise<void> {
  const { headers } = await fetch(`${origin}/healthz`);
  const policy = headers.get("content-security-policy") ?? "";
  for (const [path, body] of Object.entries(files)) {
    const contentType = path.endsWith(".js") ? "text/javascript" : "text/html";
    await page.route(`${origin}${path}`, (route) =>
      route.fulfill({ body, contentType, headers: { "content-security-policy": policy } }),
    );
  }
}

/** Opens a page that can import the SDK as `/sdk.js`. */
async function open(page: Page, origin: string): Promise<void> {
  const code = await bundle('export * from "@troupe/client/web";');
  await serve(page, origin, { "/own.html": "<!doctype html><title>Own page</title>", [SDK]: code });
  await page.goto(`${origin}/own.html`);
}

test("page spawns, follows and decides with the SDK", async ({ page, world, origin }) => {
  await open(page, origin);
  const write = toolCall("write_file", { path: "a.md", content: "x" });
  const found = await page.evaluate(async ([cwd, task, sdk]) => {
    const troupe = (await import(sdk)) as typeof Sdk;
    const client = await troupe.connect();
    const session = await client.session({ cwd, approveTools: ["write_file"] });
    const thread = await session.spawn("worker", task);
    const sequences: number[] = [];
    let [decision, end] = ["", ""];
    for await (const event of session.events()) {
      sequences.push(Number(event.sequence));
      if (event.kind === "approvalRequested") decision = (await event.grant("ok")).proto.reason;
      if (event.kind === "sessionClosed") end = event.kind;
      if (event.kind !== "turnEnded") continue;
      // Another `Session` object closes the session, so that the stream ends with its last event.
      await (await client.getSession(session.id)).close();
    }
    const { kind } = await thread.result().catch((error: Sdk.AgentError) => error.result);
    const failure = await session.spawn("worker", "say: late").catch((error: Error) => error);
    const listed = await client.sessions({ includeClosed: true });
    await client.close();
    const closed = await client.sessions().catch((error: Error) => error.message);
    return {
      sequences,
      end,
      kind,
      decision,
      isListed: listed.some(({ sessionId }) => sessionId === session.id),
      isServiceError: failure instanceof troupe.ServiceError && failure.reason !== "",
      closed,
    };
  }, [world.project, `${write}\nsay: done`, SDK] as const);
  expect(found).toEqual({
    sequences: found.sequences.map((_, index) => index + 1),
    end: "sessionClosed",
    kind: "SHUTDOWN",
    decision: "ok",
    isListed: true,
    isServiceError: true,
    closed: "the client is closed",
  });
});

test("page continues its events after the services were killed", async ({ page, world, origin, expectedErrors }) => {
  expectedErrors.push(/Failed to load resource|ERR_/);
  await open(page, origin);
  const following = page.evaluate(async (sdk) => {
    const troupe = (await import(sdk)) as typeof Sdk;
    const client = await troupe.connect();
    const session = await client.session();
    const sequences: number[] = [];
    for await (const event of session.events()) {
      sequences.push(Number(event.sequence));
      document.title = `${session.id} ${event.kind}`;
    }
    return sequences;
  }, SDK);
  await expect(page).toHaveTitle(/sessionOpened|threadSpawned/);
  const [session = ""] = (await page.title()).split(" ");
  await world.killPair();
  await world.startPair();
  await world.spawn("worker", "say: after the restart", "--session", session, "--wait");
  await world.run("session", "close", session);
  const sequences = await following;
  expect(sequences).toEqual(sequences.map((_, index) => index + 1));
  expect(sequences.length).toBeGreaterThan(5);
});

test("page without a login gets an error", async ({ browser, origin }) => {
  const context = await browser.newContext({ storageState: { cookies: [], origins: [] } });
  const page = await context.newPage();
  await open(page, origin);
  const name = await page.evaluate(async (sdk) => {
    const troupe = (await import(sdk)) as typeof Sdk;
    const client = await troupe.connect();
    return client.sessions().catch((error: Error) => error.name);
  }, SDK);
  expect(name).toBe("UnauthenticatedError");
  await context.close();
});

for (const [path, text] of [
  ["sdk/typescript/README.md", "orchestrator COMPLETED"],
  ["docs/sdks.md", "Find the parser."],
] as const) {
  test(`example of ${path} runs in a page`, async ({ page, origin }) => {
    const section = (await readFile(join(REPOSITORY, path), "utf8")).split("## In a browser")[1] ?? "";
    const [, example = ""] = /```ts\n(.*?)```/s.exec(section) ?? [];
    const html = '<!doctype html><title>Own page</title><body></body><script type="module" src="/own.js"></script>';
    await serve(page, origin, { "/own.html": html, "/own.js": await bundle(example) });
    const closed = page.waitForResponse(/\/CloseSession$/);
    await page.goto("/own.html");
    await expect(page.locator("body")).toContainText(text);
    await closed;
  });
}
