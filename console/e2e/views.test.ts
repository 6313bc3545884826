import { writeFile } from "node:fs/promises";
import { join } from "node:path";

import { serve } from "./served";
import { expect, inspect, test } from "./test";
import { toolCall } from "./world";

test("timeline, audit, usage and health show a session", async ({ page, world }) => {
  const { session } = await world.spawn("orchestrator", "hold", "--alias", "lead", "--approve-tool", "write_file");
  const write = toolCall("write_file", { path: "a.md", content: "x" });
  await world.spawn("worker", `Write.\n${write}`, "--session", session, "--alias", "writer");
  await world.spawn("explorer", "sleep: 1s\nsay: found", "--session", session, "--alias", "scout", "--wait");

  await page.goto(`/sessions/${session}`);
  await page.getByRole("link", { name: "Timeline" }).click();
  const lane = (name: string) => page.getByRole("listitem").filter({ hasText: name });
  await expect(lane("scout").getByRole("img", { name: /completed for 1s/ })).toBeVisible();
  await expect(lane("writer").getByRole("img", { name: /approval for .* continues/ })).toBeVisible();
  await expect(lane("writer").getByRole("img", { name: /\d tool calls?/ })).toBeVisible();
  await inspect(page, "timeline");
  await page.getByRole("button", { name: "Table" }).click();
  await expect(page.getByRole("row").filter({ hasText: "scout" })).toContainText("1s");
  await inspect(page, "timeline-table");

  await page.getByRole("link", { name: "Audit" }).click();
  await page.getByLabel("Filter the events").fill("approval");
  await expect(page.getByRole("row").filter({ hasText: "approval requested" })).toContainText("write_file");
  await inspect(page, "audit");
  const saving = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download JSON lines" }).click();
  expect((await saving).suggestedFilename()).toMatch(/^events-\w{8}\.jsonl$/);

  const approvals = await world.run<{ approvals: { approval_id: string }[] }>("approvals", "--session", session);
  await world.run("approvals", "deny", approvals.approvals[0]?.approval_id ?? "");
  await expect(page.getByRole("row").filter({ hasText: "approval resolved" })).toContainText("DENIED by operator");

  for (const [name, text] of [
    ["Usage", "By role"],
    ["Health", "Limits in use"],
    ["Runners", "ATTACHED"],
    ["Roles", "orchestrator"],
  ] as const) {
    await page.getByRole("link", { name, exact: true }).click();
    await expect(page.getByText(text).first()).toBeVisible();
    await expect(page.locator("main")).not.toContainText("Loading");
    await inspect(page, name.toLowerCase());
  }
  await page.getByText("orchestrator", { exact: true }).click();
  await expect(page.getByText("embedded:agents/orchestrator.md")).toBeVisible();
  await inspect(page, "roles-open");
  await world.run("session", "close", session);
});

test("timeline marks the critical path", async ({ page, world }) => {
  const { session, thread } = await world.spawn("orchestrator", "sleep: 3s\nsay: led", "--alias", "lead");
  const below = ["--session", session, "--parent", thread];
  await world.spawn("explorer", "sleep: 1s\nsay: found", ...below, "--alias", "scout");
  await world.spawn("worker", "say: ready", ...below, "--alias", "helper");
  await world.run("wait", thread);

  await page.goto(`/sessions/${session}/timeline`);
  const lane = (name: string) => page.getByRole("listitem").filter({ hasText: name });
  await expect(lane("lead").getByRole("img", { name: /completed for/ })).toBeVisible();
  await page.getByRole("button", { name: "Critical path" }).click();
  await expect(lane("lead").getByRole("img", { name: /critical path for \ds/ })).toBeVisible();
  await expect(lane("scout").getByRole("img", { name: /critical path for 1s/ })).toBeVisible();
  await expect(lane("helper").getByRole("img", { name: /critical path/ })).toHaveCount(0);
  await expect(page.getByText(/Critical path: \ds in 2 threads: .*turns took \ds/)).toBeVisible();
  await inspect(page, "timeline-path");
  await page.getByRole("button", { name: "Table" }).click();
  await expect(page).toHaveURL(/path=1&view=table/);
  await expect(page.getByRole("columnheader", { name: "Critical path" })).toBeVisible();
  await expect(page.getByRole("row").filter({ hasText: "helper" }).getByRole("cell").last()).toHaveText("0s");
  await inspect(page, "timeline-path-table");

  await world.run("session", "close", session);
});

test("tokens of threads are drawn as a chart and a table", async ({ page, origin }) => {
  const { address, close } = await serve(origin);
  await page.goto(`${address}/timeline`);
  await page.getByRole("button", { name: "Tokens" }).click();
  await expect(page).toHaveURL(/chart=tokens/);
  const cell = (name: RegExp) => page.getByRole("treeitem", { name });
  await expect(cell(/^reviewer agent-0, .* tokens/)).toHaveAttribute("aria-level", "1");
  await inspect(page, "tokens");
  await cell(/agent-0,/).focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowRight");
  await expect(page.locator(":focus")).toHaveAttribute("aria-level", "2");
  const focused = (await page.locator(":focus").getAttribute("aria-label")) ?? "";
  await page.keyboard.press("Enter");
  const zoomed = page.getByRole("treeitem", { selected: true });
  await expect(zoomed).toHaveAttribute("aria-label", focused);
  await expect(zoomed).toBeFocused();
  await inspect(page, "tokens-zoomed");
  await page.keyboard.press("Escape");
  await expect(zoomed).toHaveAttribute("aria-label", /agent-0,/);
  await page.goBack();
  await expect(zoomed).toHaveAttribute("aria-label", focused);

  await page.getByRole("button", { name: "Table" }).click();
  await expect(page).toHaveURL(/view=table/);
  await expect(page.getByRole("row").filter({ hasText: "reviewer agent-0" })).toContainText("100%");
  await inspect(page, "tokens-table");
  await page.getByRole("button", { name: "Table" }).click();
  const name = focused.split(",")[0] ?? "";
  await page.getByRole("main").getByRole("link", { name }).click();
  await expect(page.getByRole("heading", { name })).toBeVisible();
  close();
});

test("group has a table of its items and a download", async ({ page, world }) => {
  const table = join(world.project, "items.csv");
  await writeFile(table, 'key,text\na,say: one\nb,"=1+1"\nc,hold\n');
  const { session, thread } = await world.spawn("orchestrator", "hold", "--alias", "lead");
  const running = world.run("batch", "run", "--csv", table, "--role", "explorer", "-m", "{text}", "--name", "items", "--session", session);
  running.catch(() => undefined);
  expect(thread).not.toBe("");

  await page.goto(`/sessions/${session}/groups`);
  await page.getByRole("link", { name: "items" }).click();
  await expect(page.getByText("2 succeeded, 1 running")).toBeVisible();
  await expect(page.getByRole("row").filter({ hasText: "SUCCEEDED" })).toHaveCount(2);
  await inspect(page, "group");
  const saving = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download CSV" }).click();
  expect((await saving).suggestedFilename()).toBe("group-items.csv");

  await page.getByRole("button", { name: "Cancel the group" }).click();
  await expect(page.getByRole("dialog")).toContainText("1 running item will be closed");
  await page.getByRole("dialog").getByRole("button", { name: "Cancel the group" }).click();
  await expect(page.getByText("CANCELLED").first()).toBeVisible();
  await page.getByRole("link", { name: "Groups" }).click();
  await expect(page.getByRole("heading", { name: "Ended" })).toBeVisible();
  await inspect(page, "groups");
  await running.catch(() => undefined);
  await world.run("session", "close", session);
});

test("keys are listed and can be switched off", async ({ page }) => {
  await page.goto("/sessions");
  await page.getByRole("heading", { name: "Sessions" }).waitFor();
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog")).toContainText("Next session");
  await inspect(page, "keys");
  await page.getByLabel("Use the keys that are one character").uncheck();
  await page.keyboard.press("Escape");
  await page.keyboard.press("1");
  await page.keyboard.press("?");
  await page.getByLabel("Use the keys that are one character").check();
  await page.keyboard.press("Escape");
  await expect(page).toHaveURL(/\/sessions$/);
  await page.keyboard.press("/");
  await expect(page.getByLabel("Filter, as in troupe ps --filter")).toBeFocused();
  await page.keyboard.press("Escape");
  await page.keyboard.press("1");
  await expect(page.getByRole("heading", { name: "Needs you" })).toBeVisible();
});

test("unknown addresses show an error page", async ({ page, expectedErrors }) => {
  expectedErrors.push(/status of 404/);
  await page.goto("/nowhere");
  await expect(page.getByRole("heading", { name: "Not found" })).toBeVisible();
  await page.goto("/sessions/01a21ced-b5cd-7029-99b2-beb5a79f2e78");
  await expect(page.getByRole("alert").first()).toContainText(/session/);
});
