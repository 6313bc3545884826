import { readFile } from "node:fs/promises";

import { expect, test } from "./test";
import { toolCall } from "./world";

const CHILDREN = 40;

test("session is printed with all threads and its open transcript", async ({ page, world }) => {
  const spawns = Array.from({ length: CHILDREN }, (_, index) =>
    toolCall("spawn_agent", { agent_type: "explorer", message: `say: answer ${index}`, label: `Reads part ${index}` }),
  );
  const { session, thread } = await world.spawn("orchestrator", spawns.join("\n"), "--alias", "lead");
  await page.emulateMedia({ colorScheme: "dark" });
  await page.goto(`/sessions/${session}?thread=${thread}`);
  const rows = page.locator("[data-thread]");
  await expect(page.getByRole("treegrid")).toHaveAttribute("aria-rowcount", String(CHILDREN + 3));
  expect(await rows.count()).toBeLessThan(CHILDREN);
  const calls = page.locator(".transcript summary").filter({ hasText: "spawn_agent" });
  await expect(calls).toHaveCount(CHILDREN);

  const path = "results/screens/session.pdf";
  await page.pdf({ path });
  const pages = (await readFile(path, "latin1")).match(/\/Type\s*\/Page\b/g) ?? [];
  expect(pages.length).toBeGreaterThan(2);

  await page.emulateMedia({ media: "print" });
  await expect(rows).toHaveCount(CHILDREN + 2);
  await expect(page.locator(".transcript pre").filter({ hasText: '"message": "say: answer 39"' })).toBeVisible();
  await expect(page.getByRole("navigation")).toHaveCount(0);
  await expect(page.getByRole("textbox")).toHaveCount(0);
  await expect(page.getByRole("button", { name: /Close|Export|Send/ })).toHaveCount(0);
  await expect(page.locator("body")).toHaveCSS("color", "rgb(26, 29, 35)");
  const cut = await page.locator("main, main *").evaluateAll((elements) =>
    elements
      .filter((element) => !element.matches(".hidden, .cut") && getComputedStyle(element).overflow !== "visible" && element.scrollHeight > element.clientHeight + 1)
      .map((element) => element.outerHTML.slice(0, 200)),
  );
  expect(cut).toEqual([]);
  // The width of an A4 page without margins.
  await page.setViewportSize({ width: 717, height: 1040 });
  await page.screenshot({ path: "results/screens/session-print.png" });
  await world.run("session", "close", session);
});
