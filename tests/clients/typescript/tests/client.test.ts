// Checks the observations of the client's scenario. It runs once, and each test checks another part of it.

import assert from "node:assert/strict";
import { before, test } from "node:test";

import { Status } from "nice-grpc";

import { MAX_DEPTH, type Story, runScenario } from "../src/client.js";
import { pairFromEnvironment } from "../src/troupe.js";

let story: Story;

before(async () => {
  story = await runScenario(pairFromEnvironment());
});

test("the catalogue has the embedded roles", () => {
  for (const role of ["orchestrator", "explorer"]) assert.ok(story.agents.includes(role), role);
});

test("two cuts of the stream cause no missing and no repeated event", () => {
  const { snapshot } = story;
  assert.ok(snapshot !== undefined);
  const expected = story.events.map((_, index) => snapshot + BigInt(index) + 1n);
  assert.deepEqual(story.events.map((event) => event.sequence), expected);
});

test("each cut causes a new stream that delivers events", () => {
  assert.equal(story.cuts.length, 2);
  assert.equal(story.streams, 1 + story.cuts.length);
  // After the first cut, two threads were spawned and settled without a watcher.
  const missed = story.events.filter((event) => event.sequence > (story.cuts[0] ?? 0n));
  const ended = missed.filter((event) => event.kind?.$case === "turnEnded").map((event) => event.threadId);
  assert.equal(new Set(ended).size, ended.length);
  for (const leaf of leaves()) assert.ok(ended.includes(leaf), leaf);
});

test("a spawn that is too deep is rejected with the reason DEPTH_LIMIT", () => {
  assert.equal(story.refusal.code, Status.FAILED_PRECONDITION);
  assert.equal(story.refusal.reason, "DEPTH_LIMIT");
  assert.equal(story.refusal.metadata["max_depth"], `${MAX_DEPTH}`);
});

test("children are closed before their parents, and the root last", () => {
  const closings = story.events.filter((event) => event.kind?.$case === "threadClosed").map((event) => event.threadId);
  assert.deepEqual([...closings].sort(), [...story.parents.keys()].sort());
  for (const [thread, parent] of story.parents) {
    if (parent) assert.ok(closings.indexOf(thread) < closings.indexOf(parent), `${thread} before ${parent}`);
  }
});

/** Returns the threads without children. */
function leaves(): string[] {
  const parents = new Set(story.parents.values());
  return [...story.parents.keys()].filter((thread) => !parents.has(thread));
}
