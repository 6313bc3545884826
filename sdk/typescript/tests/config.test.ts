// The search for the address, the token and the certificates.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, test } from "node:test";
import { inspect } from "node:util";

import { find, isThisMachine } from "../src/config.js";
import { ConfigError } from "../src/index.js";

const environment = { ...process.env };
let home: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "troupe-sdk-"));
  process.env = { HOME: home };
});

afterEach(() => {
  process.env = environment;
  rmSync(home, { recursive: true });
});

/** Writes a file below the home. */
function write(path: string, text: string): string {
  const file = join(home, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
  return file;
}

test("address of option, then environment, then default", () => {
  assert.equal(find({}).url, "http://127.0.0.1:50052");
  process.env.TROUPE_SUPERVISOR_URL = "http://localhost:7";
  assert.equal(find({}).url, "http://localhost:7");
  assert.equal(find({ address: "127.0.0.1:8" }).url, "http://127.0.0.1:8");
  assert.equal(find({ address: "http://[::1]:9" }).url, "http://[::1]:9");
  for (const address of ["ftp://host:1", "http://", "http://host:port", "http://[::1"]) {
    assert.throws(() => find({ address }), ConfigError);
  }
});

test("context names a server", () => {
  const token = write("prod-token", "of-the-context");
  const prod = `current: prod\ncontexts:\n  prod:\n    supervisor: http://10.0.0.1:7\n    token_file: ${token}\n`;
  write(".config/troupe/config.yaml", `${prod}  local:\n    supervisor: http://127.0.0.1:8\n`);
  assert.deepEqual([find({}).url, find({}).token.expose()], ["http://10.0.0.1:7", "of-the-context"]);
  assert.equal(find({ token: "given" }).token.expose(), "given");
  assert.equal(find({ context: "local" }).url, "http://127.0.0.1:8");
  process.env.TROUPE_CONTEXT = "local";
  assert.equal(find({}).url, "http://127.0.0.1:8");
  const named = find({ address: "http://10.0.0.2:1", context: "prod" });
  assert.deepEqual([named.url, named.token.expose()], ["http://10.0.0.2:1", "of-the-context"]);
  delete process.env.TROUPE_CONTEXT;
  // The token of the context does not belong to another server.
  const other = find({ address: "http://10.0.0.2:1" });
  assert.deepEqual([other.url, other.token.expose()], ["http://10.0.0.2:1", ""]);
  assert.throws(() => find({ context: "staging" }), /unknown context "staging"/);
  for (const text of ["contexts: [", "- a list", "contexts: 5\ncurrent: prod"]) {
    write(".config/troupe/config.yaml", text);
    assert.throws(() => find({ context: "prod" }), ConfigError);
  }
  write(".config/troupe/config.yaml", "");
  assert.equal(find({}).url, "http://127.0.0.1:50052");
});

test("running services are found", () => {
  const path = ".local/share/troupe/up.json";
  write(path, JSON.stringify({ pid: process.pid, supervisor: "127.0.0.1:7" }));
  assert.equal(find({}).url, "http://127.0.0.1:7");
  assert.equal(find({ address: "127.0.0.1:8" }).url, "http://127.0.0.1:8");
  for (const text of ['{"pid": 4194304, "supervisor": "127.0.0.1:7"}', '{"pid": 1}', "[]", "x"]) {
    write(path, text);
    assert.equal(find({}).url, "http://127.0.0.1:50052", text);
  }
  write(path, JSON.stringify({ pid: process.pid, supervisor: "10.0.0.1:7" }));
  assert.equal(find({}).url, "http://127.0.0.1:50052");
});

test("token of option, then environment, then file, then data", () => {
  assert.equal(find({}).token.expose(), "");
  write(".local/share/troupe/operator.token", "of-the-data\n");
  const found = find({}).token;
  assert.deepEqual([found.expose(), found.isFound], ["of-the-data", true]);
  assert.equal(find({ address: "http://10.0.0.1:1" }).token.expose(), "");
  process.env.TROUPE_DATA_DIR = dirname(write("data/operator.token", "of-the-directory"));
  assert.equal(find({ address: "http://10.0.0.1:1" }).token.expose(), "of-the-directory");
  process.env.TROUPE_TOKEN_FILE = write("token", "\n of-the-file\nanother\n");
  assert.equal(find({}).token.expose(), "of-the-file");
  process.env.TROUPE_TOKEN = "of-the-environment";
  assert.equal(find({}).token.expose(), "of-the-environment");
  const { token } = find({ token: "given" });
  assert.deepEqual([token.expose(), token.isFound], ["given", false]);
});

test("invalid token is not shown", () => {
  assert.throws(
    () => find({ token: "two s3crets" }),
    (error) => error instanceof ConfigError && !error.message.includes("s3crets"),
  );
  assert.ok(!inspect(find({ token: "s3cret" }), { depth: 9 }).includes("s3cret"));
  assert.throws(() => find({ tokenFile: join(home, "none") }), ConfigError);
});

test("certificates need TLS", () => {
  const ca = write("ca.pem", "authority");
  assert.equal(find({ address: "troupe.example.com:1", ca }).tls.ca?.toString(), "authority");
  assert.equal(find({ address: "http://127.0.0.1:1", ca }).tls.ca, undefined);
  assert.throws(() => find({ address: "http://troupe.example.com:1", ca }), ConfigError);
  assert.throws(() => find({ address: "https://troupe.example.com:1", clientCert: ca }), ConfigError);
  assert.throws(() => find({ address: "https://troupe.example.com:1", ca: join(home, "none") }), ConfigError);
});

test("loopback hosts", () => {
  for (const host of ["127.0.0.1", "localhost", "::1", "127.1.2.3", "::ffff:127.0.0.1"]) {
    assert.ok(isThisMachine(host), host);
  }
  for (const host of ["10.0.0.1", "localhost.example.com", "0.0.0.0", ""]) assert.ok(!isThisMachine(host), host);
});
