// Writes the pictures of docs/console.md. Only ids and times differ from run to run.

import { mkdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { scriptedAgent } from "./programs";
import { expect, testWith } from "./test";
import { toolCall } from "./world";

const PICTURES = fileURLToPath(new URL("../../docs/pictures/", import.meta.url));
const MAX_BYTES = 120_000;

const LEXER = "/// Splits a text into tokens.\npub fn lex(text: &str) -> Vec<Token> {\n    todo!()\n}\n";
const line = (type: string, values: object) => JSON.stringify({ type, ...values });
const says = (text: string) => line("output", { text });
const does = (activity: string) => line("status", { activity });
const used = (input: number, output: number, left: number) =>
  line("usage", { input_tokens: input, cached_input_tokens: Math.round(input * 0.7), output_tokens: output, context_left_percent: left });
const read = toolCall("read_file", { path: "src/lexer.rs" });
const plan = (present: number) =>
  line("plan", {
    steps: ["Read the grammar", "Write the lexer", "Document the tokens"].map((step, index) => ({
      step,
      state: index < present ? "completed" : index === present ? "in_progress" : "pending",
    })),
  });

const SCRIPTS = {
  "Lead the release of the parser.": [
    does("waits for its agents"),
    says("The lexer is missing. I spawn an agent for each part of the work."),
    used(48_200, 1_900, 81),
    "hold",
  ],
  "Find the lexer and its callers.": [
    "wait: 400",
    toolCall("list_files", { path: "src" }),
    "wait: 500",
    read,
    "wait: 700",
    used(21_400, 780, 92),
    "say: The lexer is in `src/lexer.rs`. It has **one open function**:",
    "say: ",
    "say: - `lex` splits a text into tokens; its body is `todo!()`",
    "say: - no test calls it",
  ],
  "Write the lexer. Document its tokens in docs/tokens.md.": [
    plan(0),
    read,
    "wait: 1500",
    plan(1),
    does("writes docs/tokens.md"),
    used(112_600, 8_450, 64),
    toolCall("write_file", { path: "docs/tokens.md", content: "# Tokens\n\n- a name is a letter, then letters and digits\n- a number has digits only\n" }),
    "hold",
  ],
  "Review the grammar.": ["wait: 900", read, used(36_900, 1_240, 88), does("compares the tokens with the grammar"), "hold"],
  "Find errors in the grammar.": [
    read,
    "wait: 1800",
    used(27_300, 960, 90),
    toolCall("ask_parent", { question: "Two rules of the grammar accept a **tab** in the indentation, and one rejects it. Which rule is right?" }),
  ],
};
const [LEAD = "", ...TASKS] = Object.keys(SCRIPTS);
const AGENTS = [
  ["explorer", "scout"],
  ["worker", "builder"],
  ["reviewer", "critic"],
  ["bug-hunter", "hunter"],
] as const;

const test = testWith(scriptedAgent(SCRIPTS));

test.skip(process.env["TROUPE_WRITE_DOCS"] !== "1", "writes pictures of the documentation, with TROUPE_WRITE_DOCS=1");

test("pictures of the documentation", async ({ page, world }) => {
  await mkdir(join(world.project, "src"));
  await writeFile(join(world.project, "src/lexer.rs"), LEXER);
  const model = ["--model", "gpt-5.5"];
  const { session, thread } = await world.spawn("orchestrator", LEAD, "--alias", "lead", ...model, "--approve-tool", "write_file", "--session-tokens", "2000000");
  for (const [index, [role, alias]] of AGENTS.entries()) {
    await world.spawn(role, TASKS[index] ?? "", "--session", session, "--parent", thread, "--alias", alias, ...model);
  }
  const picture = async (name: string, width: number, height: number) => {
    await page.setViewportSize({ width, height });
    const path = join(PICTURES, `console-${name}.png`);
    await page.screenshot({ path });
    expect((await stat(path)).size, name).toBeLessThanOrEqual(MAX_BYTES);
  };

  await page.goto("/");
  await expect(page.getByRole("article")).toHaveCount(2);
  await expect(page.getByRole("article").filter({ hasText: "docs/tokens.md" }).getByRole("button", { name: "Grant" })).toBeEnabled();
  await picture("needs", 1000, 620);

  await page.goto(`/sessions/${session}`);
  const row = (name: string) => page.getByRole("row").filter({ hasText: name });
  await expect(row("scout")).toContainText("COMPLETED");
  await row("scout").click();
  await expect(page.locator(".kind-message strong")).toBeVisible();
  await picture("session", 1160, 600);

  await page.getByRole("link", { name: "Timeline" }).click();
  await expect(page.getByRole("listitem").filter({ hasText: "builder" }).getByRole("img", { name: /approval/ })).toBeVisible();
  await expect(page.getByRole("listitem").filter({ hasText: "scout" }).getByRole("img", { name: /tool calls/ })).toBeVisible();
  await picture("timeline", 1000, 440);

  await page.goto("/");
  await expect(page.getByRole("button", { name: "Grant" })).toBeEnabled();
  await picture("phone", 390, 780);
  await world.run("session", "close", session);
});
