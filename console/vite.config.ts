import { svelte } from "@sveltejs/vite-plugin-svelte";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const sdk = fileURLToPath(new URL("../sdk/typescript/src", import.meta.url));

export default defineConfig({
  plugins: [svelte()],
  resolve: {
    alias: { "@troupe/client": sdk },
    // The code of the SDK has no node_modules of its own here.
    dedupe: ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-web"],
  },
  build: {
    target: "es2023",
    // The content security policy permits neither data URLs nor inline scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: {
      "^/(login|logout|me|troupe\\.)": {
        target: process.env["TROUPE_CONSOLE"] ?? "http://127.0.0.1:8080",
      },
    },
  },
  test: {
    include: ["src/**/*.test.ts"],
  },
});
