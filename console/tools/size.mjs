// Fails if the first screen of the built page is larger than its bound.

import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const MAX_BYTES = 150 * 1024;

const dist = new URL("../dist/", import.meta.url);
const index = readFileSync(new URL("index.html", dist), "utf8");
const names = new Set(["index.html"]);
for (const [, name] of index.matchAll(/(?:src|href)="\/(assets\/[^"]+)"/g)) names.add(name);
let total = 0;
for (const name of names) {
  const size = gzipSync(readFileSync(new URL(name, dist)), { level: 9 }).length;
  total += size;
  console.log(`${String(size).padStart(8)}  ${name}`);
}
console.log(`${String(total).padStart(8)}  first screen, of at most ${MAX_BYTES}`);
if (total > MAX_BYTES) process.exit(1);
