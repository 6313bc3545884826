import { expect, inspect, serveDist, test } from "./test";
import { toolCall } from "./world";

test("questions and spent budgets wait for a person", async ({ page, world }) => {
  const { session } = await world.spawn("orchestrator", "hold", "--alias", "lead");
  const question = toolCall("ask_parent", { question: "Which parser?" });
  await world.spawn("explorer", question, "--session", session, "--alias", "asker");
  await world.spawn("worker", "Once.", "--session", session, "--alias", "spender", "--budget-turns", "1", "--wait");

  await page.goto("/");
  const asker = page.getByRole("article").filter({ hasText: "Which parser?" });
  await expect(asker).toContainText("QUESTION");
  const spender = page.getByRole("article").filter({ hasText: "spender" });
  await expect(spender).toContainText("BUDGET_EXHAUSTED");
  await expect(spender).toContainText("Raise the budget");
  await inspect(page, "needs-threads");

  await asker.getByRole("button", { name: "Send" }).click();
  await page.getByRole("textbox", { name: "Input" }).fill("say: the new one");
  await page.getByRole("dialog").getByRole("button", { name: "Send" }).click();
  await expect(asker).toHaveCount(0);

  await spender.getByRole("button", { name: "Budget" }).click();
  await page.getByLabel("Turns", { exact: true }).fill("5");
  await page.getByRole("button", { name: "Set budget" }).click();
  await expect(spender).toHaveCount(0);
  await world.run("session", "close", session);
});

test("decision that fails returns with its cause", async ({ page, world, expectedErrors }) => {
  expectedErrors.push(/Failed to load resource/);
  const { session } = await world.spawn("worker", toolCall("write_file", { path: "a.md", content: "x" }), "--approve-tool", "write_file");
  await page.goto("/");
  const card = page.getByRole("article").filter({ hasText: "a.md" });
  await expect(card.getByRole("button", { name: "Grant" })).toBeEnabled();
  await world.killPair();
  await expect(page.getByText(/Reconnecting/)).toBeVisible();
  await card.getByRole("button", { name: "Grant" }).click();
  await expect(card.getByRole("alert")).toContainText("Grant failed: ");
  await world.startPair();
  await expect(page.getByText(/Reconnecting/)).toHaveCount(0);
  await world.run("session", "close", session);
});

test("two tabs follow each other's decisions", async ({ context, page, world }) => {
  const { session } = await world.spawn("worker", toolCall("write_file", { path: "b.md", content: "x" }), "--approve-tool", "write_file");
  const other = await context.newPage();
  await serveDist(other);
  for (const tab of [page, other]) {
    await tab.goto("/");
    await expect(tab.getByRole("article").filter({ hasText: "b.md" })).toBeVisible();
  }
  await page.getByRole("article").filter({ hasText: "b.md" }).getByRole("button", { name: "Deny" }).click();
  await expect(other.getByRole("article").filter({ hasText: "b.md" })).toHaveCount(0);
  await other.close();
  await world.run("session", "close", session);
});

test("closed session keeps its threads and transcripts", async ({ page, world }) => {
  const { session } = await world.spawn("explorer", "say: it was there", "--alias", "finder", "--wait");
  await world.run("session", "close", session, "--wait");
  await page.goto("/sessions?closed=1");
  await page.locator(`a[href="/sessions/${session}"]`).click();
  const row = page.getByRole("row").filter({ hasText: "finder" });
  await expect(row).toContainText("SHUTDOWN");
  await row.click();
  await expect(page.locator(".kind-message")).toContainText("it was there");
  await expect(page.getByRole("button", { name: "Close session" })).toHaveCount(0);
  await page.goto(`/sessions/${session}/audit`);
  await expect(page.getByRole("row").filter({ hasText: "session closed" })).toBeVisible();
});

test("thread is supervised on a phone", async ({ page, world }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  const { session } = await world.spawn("orchestrator", "hold", "--alias", "pocket", "--approve-tool", "write_file");
  const write = toolCall("write_file", { path: "p.md", content: "line\n".repeat(40) });
  await world.spawn("worker", `say: begins\n${write}`, "--session", session, "--alias", "writer");
  await page.goto("/sessions");
  await page.locator(`a[href="/sessions/${session}"]`).click();
  await page.getByRole("row").filter({ hasText: "pocket" }).click();
  await expect(page.getByRole("heading", { name: "orchestrator pocket" })).toBeVisible();
  await expect(page.getByRole("treegrid")).toBeHidden();
  await page.getByRole("button", { name: "Interrupt" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Interrupt" }).click();
  // Searched in the thread's region, because the hidden tree contains the text too.
  await expect(page.getByRole("region", { name: "Thread orchestrator" }).getByText("INTERRUPTED", { exact: true })).toBeVisible();
  await page.getByRole("link", { name: "Close the details" }).click();
  await page.getByRole("row").filter({ hasText: "writer" }).click();
  await expect(page.getByRole("button", { name: "Grant" })).toBeEnabled();
  await page.getByRole("heading", { name: "worker writer" }).hover();
  await page.mouse.wheel(0, 5_000);
  await expect(page.getByRole("tabpanel")).toBeInViewport({ ratio: 0.8 });
  expect((await page.getByRole("tabpanel").boundingBox())?.height).toBeGreaterThan(250);
  await world.run("session", "close", session);
});
