import { expect, test } from "vitest";

import { bundle } from "../../e2e/bundle";

test.each(["web", "session_view"])("entry point %s of the SDK needs no module of Node.js", async (name) => {
  const code = await bundle(`export * from "@troupe/client/${name}";`);
  expect(code).toMatch(/\bexport\b/);
});

test("module_of_node_is_rejected", async () => {
  await expect(bundle(`export * from "@troupe/client/index";`)).rejects.toThrow("a module of Node.js");
});
