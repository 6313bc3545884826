// Agents that write markup, scripts, links, escape sequences and bidirectional controls into every field that the page
// shows. The console errors of the scripts would fail the test, as would a violation of the content security policy.

import { readdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { scriptedAgent } from "./programs";
import { expect, testWith, type Page } from "./test";
import { toolCall } from "./world";

const test = testWith(scriptedAgent());

const MARK = "<img src=x onerror=console.error(1)>";
/** For fields that reject control characters. */
const NAME = `${MARK}\u202egnp`;
const TEXT = [
  `"'>${MARK}<script>console.error(2)</script><iframe src=https://evil.example/></iframe><svg onload=console.error(3)>`,
  "[click](javascript:window.hit=4) [data](data:text/html,x) ![shot](https://evil.example/pixel.png) <a href=javascript:console.error(5)>a</a>",
  "\u001b[31mred\u001b[0m \u001b]8;;javascript:console.error(6)\u0007link \u202etxt.exe\u2066",
].join(" ");

const TASK = [
  { type: "status", activity: TEXT },
  { type: "plan", steps: [{ step: TEXT, state: "in_progress" }] },
  { type: "tool", name: NAME, detail: TEXT },
  { type: "output", text: `${TEXT}\n# ${TEXT}\n- ${TEXT}\n> ${TEXT}\n\`\`\`\n${TEXT}\n\`\`\`` },
  toolCall("set_thread_note", { note: NAME }),
  toolCall(NAME, { [NAME]: TEXT }),
  toolCall("write_file", { path: `${MARK}.md`, content: TEXT }),
  toolCall("command", { cmd: "cat *.md" }),
  toolCall("write_file", { path: ".codex/.agents/evil.md", content: `---\ndescription: '${NAME}'\n---\n${TEXT}\n` }),
  toolCall("spawn_agent", { agent_type: "explorer", label: NAME, alias: "child", message: `say: ${TEXT}` }),
  toolCall("spawn_agent", { agent_type: "explorer", label: NAME, alias: "other", message: "say: done" }),
  toolCall("create_edge", { from: "child", to: "other", label: NAME }),
  toolCall("send_handoff", { to: "child", message: `say: ${MARK}` }),
  toolCall("spawn_group", { name: NAME, agent_type: "explorer", message: "say: {text}", items: [{ key: NAME, variables: { text: MARK } }], wait: true }),
  toolCall("report_result", { result: { [NAME]: TEXT } }),
  `say: ${TEXT}`,
].map((line) => (typeof line === "string" ? line : JSON.stringify(line)));

/** Returns the elements and texts that show that an agent's text was not treated as plain text. */
async function findings(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const unsafe = /[\u001b\u202e\u2066]/;
    const made = [...document.querySelectorAll("#app :is(img, script, iframe, object, embed, [onerror], [onload])")];
    const links = [...document.querySelectorAll<HTMLAnchorElement>("#app a")].filter(({ origin }) => origin !== location.origin);
    const attributes = [...document.querySelectorAll("#app *")].filter((element) =>
      [...element.attributes].some(({ value }) => unsafe.test(value)),
    );
    const texts = [document.body.innerText, document.title].filter((text) => unsafe.test(text));
    return [...[...made, ...links, ...attributes].map(({ outerHTML }) => outerHTML), ...texts];
  });
}

test("text of agents stays text in every view", async ({ page, world, origin, expectedErrors }) => {
  expectedErrors.push(/status of 404/);
  const requests: string[] = [];
  page.on("request", (request) => requests.push(request.url()));
  const { session, thread } = await world.spawn("orchestrator", TASK.join("\n"), "--alias", "evil", "--label", NAME, "--wait");
  await world.spawn("explorer", toolCall("ask_parent", { question: TEXT }), "--session", session, "--wait");
  const failed = JSON.stringify({ type: "turn_end", outcome: "errored", message: TEXT });
  await world.spawn("explorer", failed, "--session", session).catch(() => undefined);
  const waiting = await world.spawn("worker", toolCall("write_file", { path: `${MARK}.md`, content: TEXT }), "--approve-tool", "write_file");

  const home = `/sessions/${session}`;
  await page.goto(`${home}/groups`);
  const group = (await page.getByRole("link", { name: MARK }).getAttribute("href")) ?? "";
  const tabs = ["transcript", "info", "prompt", "mail", "files"].map((tab) => `${home}?thread=${thread}&tab=${tab}`);
  /** The addresses of each view, and whether the view shows text of agents. */
  const views: Record<string, { addresses: string[]; hasText: boolean }> = {
    Audit: { addresses: [`${home}/audit`], hasText: true },
    GroupItems: { addresses: [group], hasText: true },
    Groups: { addresses: [`${home}/groups`], hasText: true },
    Health: { addresses: ["/health"], hasText: false },
    Needs: { addresses: ["/"], hasText: true },
    NotFound: { addresses: [`/${encodeURIComponent(MARK)}/none`], hasText: false },
    Roles: { addresses: [`/roles?session=${session}`], hasText: true },
    Runners: { addresses: ["/runners"], hasText: false },
    Session: { addresses: [home, `${home}?closed=1&filter=${encodeURIComponent(NAME)}`, ...tabs], hasText: true },
    Sessions: { addresses: ["/sessions"], hasText: false },
    Timeline: { addresses: [`${home}/timeline`, `${home}/timeline?view=table`], hasText: true },
    Usage: { addresses: ["/usage"], hasText: false },
  };
  const files = await readdir(fileURLToPath(new URL("../src/views", import.meta.url)));
  expect(Object.keys(views).sort()).toEqual(files.map((file) => file.replace(".svelte", "")).filter((name) => name !== "Login").sort());

  for (const { addresses, hasText } of Object.values(views)) {
    for (const address of addresses) {
      await page.goto(address);
      const main = page.locator("main");
      await expect(main).toContainText(/\S/);
      await expect(main).not.toContainText("Loading");
      if (hasText) await expect(main).toContainText(MARK);
      await page.locator("details").evaluateAll((all) => all.forEach((details) => details.setAttribute("open", "")));
      await expect(main).not.toContainText("Loading");
      expect(await findings(page), address).toEqual([]);
    }
  }
  await page.goto(tabs[0] ?? "");
  const message = page.locator(".kind-message p").first();
  await expect(message).toContainText("<script>console.error(2)</script>");
  await expect(message).toContainText("[click](javascript:window.hit=4) [data](data:text/html,x)");
  await expect(page.getByRole("button", { name: "shot (evil.example)" }).first()).toBeVisible();
  expect(requests.filter((url) => new URL(url).origin !== origin)).toEqual([]);
  for (const id of [session, waiting.session]) await world.run("session", "close", id);
});
