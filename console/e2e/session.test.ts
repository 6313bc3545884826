import { expect, inspect, test } from "./test";
import { toolCall } from "./world";

test("session shows its tree, a thread and its transcript", async ({ page, world }) => {
  const options = ["--session-tokens", "500000", "--session-label", "team=core"];
  const { session, thread } = await world.spawn("orchestrator", "Lead this.\nhold", "--alias", "lead", ...options);
  const inSession = ["--session", session];
  const below = ["--parent", thread];
  await world.spawn("explorer", "Look.\nsay: **Found** `three` places, see [docs](https://example.org/x)", ...inSession, ...below, "--alias", "scout");
  await world.spawn("worker", `Write.\n${toolCall("write_file", { path: "a.md", content: "x" })}\nsay: written`, ...inSession, ...below, "--alias", "writer");
  await world.spawn("reviewer", "hold", ...inSession, "--alias", "critic", "--label", "Reviews the lexer");

  await page.goto("/sessions");
  await expect(page.getByRole("row").filter({ hasText: "team=core" })).toBeVisible();
  await inspect(page, "sessions");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");

  const grid = page.getByRole("treegrid", { name: "Threads" });
  const row = (name: string) => grid.getByRole("row").filter({ hasText: name });
  await expect(row("scout")).toContainText("COMPLETED");
  await expect(row("scout")).toHaveAttribute("aria-level", "3");
  await inspect(page, "session");

  await grid.getByRole("row").nth(1).focus();
  await page.keyboard.press("j");
  await expect(row("lead")).toBeFocused();
  await page.keyboard.press("h");
  await expect(row("lead")).toHaveAttribute("aria-expanded", "false");
  await expect(row("scout")).toHaveCount(0);
  await page.keyboard.press("l");
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "explorer scout" })).toBeVisible();
  await expect(page.locator(".transcript .kind-message strong", { hasText: "Found" })).toBeVisible();

  await page.locator(".kind-message").getByRole("button", { name: "docs (example.org)" }).click();
  await expect(page.getByRole("dialog")).toContainText("https://example.org/x");
  await page.keyboard.press("Escape");

  await row("writer").click();
  await expect(page.locator("summary").filter({ hasText: "write_file" })).toBeVisible();
  await inspect(page, "thread");
  for (const tab of ["info", "prompt", "mail", "files"]) {
    await page.getByRole("tab", { name: tab }).click();
    await expect(page.getByRole("tabpanel")).not.toContainText("Loading");
    await inspect(page, `thread-${tab}`);
  }
  await page.getByRole("tab", { name: "info" }).click();
  await expect(page.getByRole("tabpanel")).toContainText("WORKSPACE_WRITE (INHERITED)");

  await page.getByLabel("Filter, as in troupe ps --filter").fill("s:running r:reviewer");
  await expect(row("critic")).toBeVisible();
  await expect(row("scout")).toHaveCount(0);
  await expect(page).toHaveURL(/filter=s%3Arunning\+r%3Areviewer/);
  await page.getByLabel("Filter, as in troupe ps --filter").fill("s:zzz");
  await expect(page.getByText('unknown status "zzz"')).toBeVisible();
  await world.run("session", "close", session);
});

test("thread is sent input, interrupted, closed and reopened", async ({ page, world }) => {
  const { session } = await world.spawn("orchestrator", "hold", "--alias", "boss");
  await page.goto(`/sessions/${session}`);
  const row = page.getByRole("row").filter({ hasText: "boss" });
  await row.click();
  await expect(row).toContainText("RUNNING");

  await page.keyboard.press("i");
  await expect(page.getByRole("dialog")).toContainText("Interrupt orchestrator boss?");
  await inspect(page, "interrupt");
  await page.getByRole("button", { name: "Interrupt", exact: true }).last().click();
  await expect(page.getByText("1 thread interrupted")).toBeVisible();
  await expect(row).toContainText("INTERRUPTED");

  await page.keyboard.press("s");
  await page.getByRole("textbox", { name: "Input" }).fill("say: thanks");
  await page.keyboard.press("Control+Enter");
  await expect(row).toContainText("COMPLETED");
  await expect(page.locator(".transcript")).toContainText("thanks");

  await page.keyboard.press("b");
  await page.getByLabel("Tokens").fill("123000");
  await page.getByRole("button", { name: "Set budget" }).click();
  await page.getByRole("tab", { name: "info" }).click();
  await expect(page.getByText("123k tokens")).toBeVisible();

  const budget = page.getByRole("button", { name: "Budget", exact: true });
  await budget.click();
  await page.keyboard.press("Escape");
  await expect(budget).toBeFocused();

  await page.getByRole("button", { name: "Pause" }).click();
  await expect(page.getByText("paused", { exact: true })).toBeVisible();
  await page.keyboard.press("s");
  await page.getByRole("textbox", { name: "Input" }).fill("say: no");
  // The call is delayed, so that the dialog is closed before the call fails.
  await page.route(
    /\/SendInput$/,
    async (route) => {
      await page.keyboard.press("Escape");
      await route.continue();
    },
    { times: 1 },
  );
  await page.keyboard.press("Control+Enter");
  await expect(page.getByText(/^Send input to orchestrator boss: /)).toBeVisible();
  await page.getByRole("button", { name: "Resume" }).click();
  await expect(page.getByText("paused", { exact: true })).toHaveCount(0);

  await page.getByRole("tab", { name: "transcript" }).click();
  await page.keyboard.press("x");
  await expect(page.getByRole("dialog")).toContainText("No other thread is below it.");
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
  await page.getByLabel("Closed", { exact: true }).check();
  await expect(row).toContainText("SHUTDOWN");
  await page.getByRole("button", { name: "Reopen" }).click();
  await expect(row).not.toContainText("SHUTDOWN");
  await page.keyboard.press("s");
  await page.getByRole("textbox", { name: "Input" }).fill("say: back again");
  await page.keyboard.press("Control+Enter");
  await expect(page.locator(".kind-message").filter({ hasText: "back again" })).toBeVisible();

  await page.getByRole("button", { name: "Close session" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Close the session" }).click();
  await expect(page.getByText("closed", { exact: true })).toBeVisible();
});

test("page follows the services across a crash", async ({ page, world }) => {
  const { session } = await world.spawn("orchestrator", "hold", "--alias", "survivor");
  await page.goto(`/sessions/${session}`);
  await expect(page.getByRole("row").filter({ hasText: "survivor" })).toContainText("RUNNING");
  await world.killPair();
  await expect(page.getByText(/Reconnecting, as of \d\d:\d\d:\d\d/)).toBeVisible();
  await inspect(page, "reconnecting");
  await world.startPair();
  await expect(page.getByText(/Reconnecting/)).toHaveCount(0);
  await expect(page.getByRole("row").filter({ hasText: "survivor" })).toBeVisible();
  await world.run("session", "close", session);
});

test("agent is spawned below a thread, and the session is exported", async ({ page, world }) => {
  const { session } = await world.spawn("orchestrator", "hold", "--alias", "chief");
  await page.goto(`/sessions/${session}`);
  await page.getByRole("row").filter({ hasText: "chief" }).click();
  await expect(page.getByRole("heading", { name: "orchestrator chief" })).toBeVisible();
  await page.keyboard.press("N");
  await page.getByLabel("Role").selectOption("explorer");
  await expect(page.getByRole("dialog")).toContainText("allowed tools");
  await inspect(page, "spawn");
  await page.getByLabel("Task").fill("say: spawned");
  await page.getByRole("dialog").getByRole("button", { name: "Spawn" }).click();
  const child = page.getByRole("row").filter({ hasText: "explorer" });
  await expect(child).toHaveAttribute("aria-level", "3");
  await expect(child).toContainText("COMPLETED");

  const saving = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export" }).click();
  expect((await saving).suggestedFilename()).toMatch(/^session-\w{8}\.jsonl$/);
  await world.run("session", "close", session);
});
