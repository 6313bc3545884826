import { expect, inspect, test } from "./test";
import { toolCall } from "./world";

const HOSTILE = "# Lexer\n<img src=x onerror=alert(1)>\n\u001b[31mred\u001b[0m \u202egnp.exe";

test("approval is granted and denied in place", async ({ page, world }) => {
  const { session } = await world.spawn("orchestrator", "hold", "--alias", "lead", "--approve-tool", "write_file");
  const write = (path: string) => toolCall("write_file", { path, content: HOSTILE });
  await world.spawn("worker", `${write("a.md")}\n${write("b.md")}\nsay: done`, "--session", session, "--alias", "writer");

  await page.goto("/");
  const card = page.getByRole("article").filter({ hasText: "a.md" });
  await expect(card).toContainText("<img src=x onerror=alert(1)>");
  await expect(card).toContainText(String.raw`\u{1b}[31mred\u{1b}[0m \u{202e}gnp.exe`);
  await expect(card).toContainText("denied in 9:");
  await expect(page.locator("nav")).toContainText("Needs you 1");
  await inspect(page, "needs");

  await page.keyboard.press("j");
  await expect(card).toBeFocused();
  await page.keyboard.press("y");
  await expect(page.getByText(/approval .*: GRANTED/)).toBeVisible();

  const second = page.getByRole("article").filter({ hasText: "b.md" });
  await second.getByRole("textbox").fill("not in this session");
  // A click right after a decision may be the second click of a double click, so the button does nothing.
  await expect(async () => {
    await second.getByRole("button", { name: "Deny" }).click({ timeout: 500 });
    await expect(second).toHaveCount(0, { timeout: 500 });
  }).toPass();
  await expect(page.getByText(/approval .*: DENIED/)).toBeVisible();
  await expect(page.getByText("No approval, question or problem waits for you.")).toBeVisible();
  await world.run("session", "close", session);
});

test("equal calls are decided together", async ({ page, world }) => {
  const { session } = await world.spawn("orchestrator", "hold", "--alias", "lead", "--approve-tool", "write_file");
  const write = toolCall("write_file", { path: "same.md", content: "x" });
  for (const alias of ["first", "second"]) await world.spawn("worker", write, "--session", session, "--alias", alias);
  await page.goto("/");
  await expect(page.getByRole("article")).toHaveCount(2);
  await page.getByRole("button", { name: "Grant all 2 equal calls" }).first().click();
  await expect(page.getByRole("article")).toHaveCount(0);
  await expect(page.getByText(/GRANTED/)).toHaveCount(2);
  await world.run("session", "close", session);
});

test("call that cannot be read whole cannot be granted", async ({ page, world, expectedErrors }) => {
  expectedErrors.push(/Failed to load resource/);
  const write = toolCall("write_file", { path: "long.md", content: "x".repeat(20_000) });
  const { session } = await world.spawn("worker", write, "--approve-tool", "write_file");
  await page.route(/\/GetContent$/, (route) => route.abort());
  await page.goto("/");
  const card = page.getByRole("article").filter({ hasText: "write_file" });
  await expect(card).toContainText("The whole call could not be read, so it cannot be granted");
  await expect(card.getByRole("button", { name: "Grant" })).toBeDisabled();
  await card.focus();
  await page.keyboard.press("y");
  await expect(card).toBeVisible();

  await page.unroute(/\/GetContent$/);
  await card.getByRole("button", { name: "Read the call again" }).click();
  await card.getByRole("button", { name: "Grant" }).click();
  await expect(page.getByText(/approval .*: GRANTED/)).toBeVisible();
  await world.run("session", "close", session);
});
