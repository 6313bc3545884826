// Random operations while the service is killed and connections are lost. TROUPE_SDK_CHAOS sets their number.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApprovalDecision } from "../src/gen/troupe/supervisor/v1/event_pb.js";
import * as troupe from "../src/index.js";
import { DEADLINE_MS, inTime, Pair, Relay } from "./pair.js";

const OPERATIONS = Number(process.env.TROUPE_SDK_CHAOS ?? "100");
const WORKERS = 4;
/** The number of operations between two disturbances. */
const CALM = 25;
/** A task whose tool call waits for an operator. */
const ASKING = `${JSON.stringify({ tool_call: { name: "write_file", args: { path: "a.md", content: "x" } } })}\nsay: asked`;

/** Returns numbers from 0 to 1 that are the same in each run (mulberry32). */
function randomNumbers(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), seed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Runs operations of a session, and knows which effects the session must have. */
class Operations {
  begun = 0;
  /** The threads below the root, without those of `map`. */
  readonly spawned: string[] = [];
  /** The inputs that were sent: thread and number. */
  readonly inputs: string[] = [];
  readonly rows: troupe.Row[] = [];
  /** The threads that can be used. */
  readonly #open: troupe.Thread[] = [];
  #disturbing = Promise.resolve();

  constructor(
    private readonly session: troupe.Session,
    private readonly random: () => number,
    private readonly disturb: () => Promise<void>,
  ) {}

  /** Runs all operations, some of them concurrently. */
  async run(): Promise<void> {
    await Promise.all(Array.from({ length: WORKERS }, () => this.#work()));
    await this.#disturbing;
  }

  async #work(): Promise<void> {
    while (this.begun < OPERATIONS) {
      this.begun += 1;
      if (this.begun % CALM === 0) this.#disturbing = this.#disturbing.then(this.disturb);
      try {
        await this.#operate();
      } catch (error) {
        // Another worker closes the thread.
        if (!(error instanceof troupe.ThreadClosingError || error instanceof troupe.ThreadClosedError)) throw error;
      }
    }
  }

  #below(end: number): number {
    return Math.floor(this.random() * end);
  }

  async #operate(): Promise<void> {
    const thread = this.#open[this.#below(this.#open.length)];
    if (!thread || this.#open.length < WORKERS || this.random() < 0.25) {
      const spawned = await this.session.spawn("worker", this.random() < 0.3 ? ASKING : "say: it", { queue: true });
      this.spawned.push(spawned.id);
      this.#open.push(spawned);
      return;
    }
    switch (this.#below(6)) {
      case 0:
        await thread.interrupt("chaos");
        break;
      case 1:
        this.#open.splice(this.#open.indexOf(thread), 1);
        await thread.close();
        break;
      case 2:
        await this.#map();
        break;
      case 3:
        await this.#read(thread);
        break;
      default:
        this.inputs.push(`${thread.id} ${await thread.send("say: more", { queue: true })}`);
    }
  }

  async #map(): Promise<void> {
    const items = ["1", "2", "3"];
    const rows = await this.session.map("worker", items, "say: {item}", { retries: 3 });
    assert.deepEqual(
      rows.map(({ item }) => item),
      items,
    );
    for (const { state, text, item } of rows) if (state === "SUCCEEDED") assert.equal(text, item);
    this.rows.push(...rows);
  }

  /** Reads the transcript of a thread, and an artifact: `map` makes a table of its results. */
  async #read(thread: troupe.Thread): Promise<void> {
    let last = 0n;
    for await (const { number } of thread.transcript()) {
      last += 1n;
      assert.equal(number, last);
    }
    const artifacts = await this.session.artifacts();
    const artifact = artifacts[this.#below(artifacts.length)];
    if (artifact) assert.equal((await artifact.read()).length, Number(artifact.proto.content?.size));
  }
}

test("no effect is lost or repeated in chaos", async () => {
  const most = String(10 * OPERATIONS);
  await using pair = await Pair.start("--max-open-threads", most, "--max-total-threads", most);
  await using relay = await Relay.start(pair.url);
  const retry = { attempts: 50, initialDelayMs: 100, maxDelayMs: 1_000 };
  await using client = await pair.connect({ address: relay.url, retry });
  await using direct = await pair.connect({ retry });
  const session = await client.session({ cwd: pair.project, approveTools: ["write_file"] });
  const found: troupe.SessionEvent[] = [];
  const granted: string[] = [];

  const following = (async () => {
    for await (const event of (await client.getSession(session.id)).events()) {
      found.push(event);
      if (event.kind !== "approvalRequested") continue;
      const { approvalId } = event.data;
      try {
        if ((await event.grant("chaos")).proto.decision === ApprovalDecision.GRANTED) granted.push(approvalId);
      } catch (error) {
        // The turn that needs the approval has ended.
        if (!(error instanceof troupe.IllegalTransitionError)) throw error;
      }
    }
  })();
  const random = randomNumbers(OPERATIONS);
  const operations = new Operations(session, random, async () => {
    // Calls have an effect, and their responses are lost.
    relay.withholds = true;
    await (await direct.getSession(session.id)).info();
    if (random() < 0.5) {
      await pair.send("SIGKILL");
      await pair.start();
    }
    relay.withholds = false;
    relay.drop();
  });
  await inTime(operations.run(), 10 * DEADLINE_MS);
  await session.close();
  await inTime(following);

  assert.deepEqual(
    found.map(({ sequence }) => sequence),
    found.map((_, index) => BigInt(index + 1)),
  );
  assert.equal(found.at(-1)?.kind, "sessionClosed");
  const threads = found.flatMap(({ kind, threadId }) => (kind === "threadSpawned" ? [threadId] : []));
  assert.equal(new Set(threads).size, threads.length);
  const attempts = operations.rows.reduce((sum, { proto }) => sum + proto.attempts, 0);
  assert.equal(threads.length, 1 + operations.spawned.length + attempts);
  for (const id of [...operations.spawned, ...operations.rows.map(({ threadId }) => threadId)]) assert.ok(threads.includes(id));
  const queued = found.flatMap((event) => (event.kind === "inputQueued" ? [`${event.threadId} ${event.data.number}`] : []));
  assert.deepEqual(queued.sort(), operations.inputs.sort());
  const closed = found.flatMap(({ kind, threadId }) => (kind === "threadClosed" ? [threadId] : []));
  assert.deepEqual(closed.sort(), threads.sort());
  assert.ok(granted.length > 0);
  const resolved = found.flatMap((event) =>
    event.kind === "approvalResolved" && event.data.decision === ApprovalDecision.GRANTED ? [event.data.approvalId] : [],
  );
  assert.deepEqual(resolved.sort(), granted.sort());
});
