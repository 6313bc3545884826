// Bundles modules into one file for a page. The modules import the SDK like a user's program.

import { isBuiltin } from "node:module";
import { fileURLToPath } from "node:url";
import { build, type Plugin } from "vite";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const ENTRY = "/entry.ts";

/** Bundles a module for a page. Throws if it needs a module of Node.js. */
export async function bundle(source: string): Promise<string> {
  const entry: Plugin = {
    name: "entry",
    enforce: "pre",
    resolveId(id, importer) {
      if (isBuiltin(id)) throw new Error(`${importer} needs ${id}, a module of Node.js`);
      return id === ENTRY ? id : undefined;
    },
    load: (id) => (id === ENTRY ? source : undefined),
  };
  const output = await build({
    root: ROOT,
    logLevel: "silent",
    plugins: [entry],
    build: {
      write: false,
      rollupOptions: { input: ENTRY, preserveEntrySignatures: "strict", output: { codeSplitting: false } },
    },
  });
  const [file] = "output" in output ? output.output : [];
  if (file?.type !== "chunk") throw new Error("the bundle has no code");
  return file.code;
}
