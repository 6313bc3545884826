// A real agent program in the page. A stand-in for its provider is scripted: the array in a prompt contains the answers
// of the model.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { codex } from "./programs";
import { expect, inspect, testWith } from "./test";

const test = testWith(codex);

test.skip(process.env["TROUPE_AGENTS"] !== "1", "needs the real programs: tests/agents/install, then TROUPE_AGENTS=1");

function script(...steps: object[]): string {
  return `@@${JSON.stringify(steps)}@@`;
}

test("Codex is supervised in the page", async ({ page, world }) => {
  const roles = join(world.project, ".codex/.agents");
  await mkdir(roles, { recursive: true });
  await writeFile(join(roles, "coder.md"), "---\ndescription: Writes code\nmodel: gpt-5.5\n---\nDo as you are told.\n");
  const command = "echo made in the page | tee made.txt";
  const task = script({ text: "**First** a file.", tool: "exec_command", args: { cmd: command } }, { text: "It is in `made.txt`." });
  // With a label of its own, because the default label is a part of the task and appears in the prompt: the stand-in
  // would find an incomplete script.
  const options = ["--alias", "codex", "--label", "Makes a file", "--approve-tool", "exec_command"];
  const { session, thread } = await world.spawn("coder", `Make it. ${task}`, ...options);

  await page.goto("/");
  const card = page.getByRole("article").filter({ hasText: command });
  await expect(card).toBeVisible({ timeout: 60_000 });
  await card.getByRole("button", { name: "Grant" }).click();
  await expect(page.getByText(/approval .*: GRANTED/)).toBeVisible();

  await page.goto(`/sessions/${session}?thread=${thread}`);
  const row = page.getByRole("row").filter({ hasText: "codex" });
  await expect(row).toContainText("COMPLETED");
  expect(await readFile(join(world.project, "made.txt"), "utf8")).toBe("made in the page\n");
  const messages = page.locator(".kind-message");
  await expect(messages.locator("strong", { hasText: "First" })).toBeVisible();
  await expect(messages.locator("code", { hasText: "made.txt" })).toBeVisible();
  const call = page.locator(".kind-call").filter({ hasText: "exec_command" });
  await expect(call).toContainText("allowed by an operator");
  await call.locator("summary").click();
  await expect(call.locator("pre").last()).toContainText("made in the page");
  // The stand-in reports 1,000 and then 1,100 read tokens, and 20 written tokens with each answer.
  await expect(page.getByText("2k tokens").last()).toBeVisible();
  await expect(page.getByText("cost 0.0046", { exact: true })).toBeVisible();
  await inspect(page, "codex");
  await page.getByRole("tab", { name: "info" }).click();
  await expect(page.getByRole("tabpanel")).toContainText("gpt-5.5");
  await page.getByRole("tab", { name: "files" }).click();
  await expect(page.locator(".diff .added")).toContainText(["+made in the page"]);

  await page.keyboard.press("s");
  await page.getByRole("textbox", { name: "Input" }).fill(`Go on. ${script({ delay: 50, text: "never said" })}`);
  await page.keyboard.press("Control+Enter");
  await expect(row).toContainText("RUNNING");
  await page.keyboard.press("i");
  await page.getByRole("dialog").getByRole("button", { name: "Interrupt" }).click();
  await expect(row).toContainText("INTERRUPTED");
  await page.goto("/usage");
  await expect(page.getByRole("region", { name: "By model" })).toContainText("gpt-5.5");
  await world.run("session", "close", session);
});
