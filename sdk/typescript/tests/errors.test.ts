// Transient errors, and the text of a mismatch.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Code, ConnectError } from "@connectrpc/connect";
import { z } from "zod";

import { ErrorInfoSchema } from "../src/gen/google/rpc/error_details_pb.js";
import { serviceError, type StandardSchemaV1, withJsonSchema } from "../src/index.js";
import { schemaText, validate } from "../src/schema.js";

test("only lost connections and busy services are transient", () => {
  const codes = Object.values(Code).filter((code) => typeof code === "number");
  const transient = codes.filter((code) => serviceError(new ConnectError("of the transport", code)).isTransient);
  // As in client/src/lib.rs and in the errors of the Python package.
  assert.deepEqual(new Set(transient), new Set([Code.Unavailable, Code.Unknown, Code.Canceled, Code.Internal]));
  const reset = new ConnectError("read ECONNRESET", Code.Aborted, undefined, undefined, new Error("ECONNRESET"));
  assert.deepEqual([serviceError(reset).code, serviceError(reset).isTransient], [Code.Unavailable, true]);
  for (const [reason, isTransient] of [["DRAINING", true], ["INTERNAL", false]] as const) {
    const detail = { desc: ErrorInfoSchema, value: { domain: "troupe.dev", reason } };
    assert.equal(serviceError(new ConnectError("no", Code.Unavailable, undefined, [detail])).isTransient, isTransient);
  }
});

const Finding = z.object({ path: z.string(), problems: z.array(z.string()).default([]) });

test("schema of a library is sent as the JSON Schema of its input", () => {
  const { $schema, ...sent } = JSON.parse(schemaText(Finding)) as Record<string, unknown>;
  assert.equal($schema, "https://json-schema.org/draft/2020-12/schema");
  assert.deepEqual(sent["required"], ["path"]);
  assert.deepEqual(JSON.parse(schemaText(z.toJSONSchema(Finding, { io: "input" }))), { $schema, ...sent });
  assert.equal(schemaText({ type: "integer" }), '{"type":"integer"}');
});

test("schema without JSON Schema needs one", async () => {
  const even: StandardSchemaV1<number> = {
    "~standard": {
      version: 1,
      vendor: "test",
      validate: async (value) => (Number(value) % 2 === 0 ? { value: Number(value) } : { issues: [{ message: "is odd" }] }),
    },
  };
  // @ts-expect-error The type rejects it too.
  assert.throws(() => schemaText(even), /the schema of test has no JSON Schema/);
  const typed = withJsonSchema(even, { type: "integer" });
  assert.equal(schemaText(typed), '{"type":"integer"}');
  assert.equal(await validate(typed, 4, "t1"), 4);
  await assert.rejects(validate(typed, 3, "t1"), {
    name: "ResultMismatchError",
    message: "the result of thread t1 does not match its schema: is odd",
    value: 3,
  });
});

test("mismatch names the location", async () => {
  assert.deepEqual(await validate(Finding, { path: "a.ts" }, "t1"), { path: "a.ts", problems: [] });
  await assert.rejects(validate(Finding, { path: "a.ts", problems: ["x", 1] }, "t1"), /schema: problems\.1: .*string/);
});
