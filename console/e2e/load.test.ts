import { fileURLToPath } from "node:url";
import { build } from "vite";

import type * as Snapshot from "./snapshot";
import { expect, test } from "./test";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

async function bundled(): Promise<typeof Snapshot> {
  const outDir = `${ROOT}/results/bundle`;
  await build({
    root: ROOT,
    logLevel: "warn",
    ssr: { noExternal: true },
    build: { ssr: "e2e/snapshot.ts", outDir },
  });
  return (await import(`${outDir}/snapshot.js`)) as typeof Snapshot;
}

test("session with 10,000 threads answers quickly", async ({ page }) => {
  const { SESSION, THREADS, body, snapshot } = await bundled();
  const data = body(snapshot());
  let calls = 0;
  await page.route("**/troupe.console.v1.ConsoleService/Watch", async (route) => {
    calls += 1;
    // The second stream stays open and silent.
    if (calls > 1) return;
    await route.fulfill({ status: 200, headers: { "content-type": "application/grpc-web+proto" }, body: data });
  });
  // Measured in the page, from the start of the navigation.
  await page.addInitScript(() => {
    new MutationObserver((_, observer) => {
      if (!document.querySelector("[data-thread]")) return;
      performance.mark("first row");
      observer.disconnect();
    }).observe(document, { childList: true, subtree: true });
  });
  await page.goto(`/sessions/${SESSION}`);
  await expect(page.getByRole("row").filter({ hasText: "agent-0" }).first()).toBeVisible();
  const first = await page.evaluate(() => performance.getEntriesByName("first row")[0]?.startTime ?? Infinity);
  await expect(page.getByRole("treegrid")).toHaveAttribute("aria-rowcount", String(THREADS + 1));

  await page.getByRole("row").nth(1).focus();
  const moves = await page.evaluate(async () => {
    const times: number[] = [];
    for (let index = 0; index < 60; index += 1) {
      const before = performance.now();
      const event = new KeyboardEvent("keydown", { key: index % 10 ? "j" : "PageDown", bubbles: true, cancelable: true });
      document.activeElement?.dispatchEvent(event);
      await new Promise(requestAnimationFrame);
      await new Promise((resolve) => setTimeout(resolve));
      times.push(performance.now() - before);
    }
    return times.sort((a, b) => a - b);
  });
  const filter = page.getByLabel("Filter, as in troupe ps --filter");
  const typing = performance.now();
  await filter.fill("r:reviewer agent-99");
  await expect(page.getByRole("row").filter({ hasText: "agent-99" }).first()).toBeVisible();
  const filtered = performance.now() - typing;

  const session = await page.context().newCDPSession(page);
  await session.send("HeapProfiler.collectGarbage");
  await session.send("Performance.enable");
  const { metrics } = await session.send("Performance.getMetrics");
  const heap = (metrics.find(({ name }) => name === "JSHeapUsedSize")?.value ?? Infinity) / 1024 / 1024;
  const p95 = moves[Math.floor(moves.length * 0.95)] ?? Infinity;
  console.log(
    `first row ${first.toFixed(0)} ms, key p95 ${p95.toFixed(0)} ms, filter ${filtered.toFixed(0)} ms, heap ${heap.toFixed(0)} MiB`,
  );
  expect(heap).toBeLessThan(200);
  // Times are checked on a machine that does nothing else.
  if (!process.env["TROUPE_CONSOLE_TIMES"]) return;
  expect(first).toBeLessThan(1_000);
  expect(p95).toBeLessThan(100);
});
