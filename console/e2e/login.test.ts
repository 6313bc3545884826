import { expect, inspect, serveDist, test } from "./test";

test.use({ storageState: { cookies: [], origins: [] } });
test.describe("login", () => {
  test.use({ expectedErrors: [/status of 40[13]|ERR_CONNECTION_(REFUSED|RESET)|ERR_SOCKET_NOT_CONNECTED|ERR_INCOMPLETE_CHUNKED_ENCODING/] });

  test("link logs in once, and its code leaves the address", async ({ page, world }) => {
    const console = await world.console();
    await page.goto(console.link);
    await expect(page.getByRole("heading", { name: "Needs you" })).toBeVisible();
    expect(page.url()).toBe(`${console.origin}/`);
    const storage = await page.evaluate(() => [document.cookie, JSON.stringify(localStorage), JSON.stringify(history.state)]);
    expect(storage.join()).not.toContain(new URL(console.link).hash.slice(1));

    await page.getByRole("button", { name: "Log out" }).click();
    await expect(page.getByLabel("Link or code")).toBeVisible();
    await inspect(page, "login");
    await page.getByLabel("Link or code").fill(console.link);
    await page.getByRole("button", { name: "Log in" }).click();
    await expect(page.getByRole("alert").first()).toContainText(/code|link/i);
    await console.stop();
  });

  test("logging out in one tab ends the other", async ({ page, context, world }) => {
    const console = await world.console();
    await page.goto(console.link);
    await expect(page.getByRole("heading", { name: "Needs you" })).toBeVisible();
    const other = await context.newPage();
    await serveDist(other);
    await other.goto(console.origin);
    await expect(other.getByRole("heading", { name: "Needs you" })).toBeVisible();
    await other.getByRole("button", { name: "Log out" }).click();
    await expect(page.getByLabel("Link or code")).toBeVisible();
    await expect(page.locator("main")).toHaveCount(0);
    await console.stop();
  });

  test("proxy logs in an operator and a viewer", async ({ page, world }) => {
    const { session } = await world.spawn("orchestrator", "hold", "--alias", "proxied");
    for (const [user, actions] of [["ann@example.org", 1], ["a-person-with-a-long-name@department.example.org", 0]] as const) {
      const console = await world.consoleFor(user, "--proxy-operator", "ann@example.org");
      await page.goto(`${console.link}/sessions/${session}`);
      await expect(page.getByText(user)).toBeVisible();
      await expect(page.getByRole("button", { name: "Log out" })).toHaveCount(0);
      await expect(page.getByText("viewer", { exact: true })).toHaveCount(1 - actions);
      await page.getByRole("row").filter({ hasText: "proxied" }).click();
      await expect(page.getByRole("heading", { name: "orchestrator proxied" })).toBeVisible();
      await expect(page.getByRole("button", { name: "Close session", exact: true })).toHaveCount(actions);
      await inspect(page, `proxy-${actions}`);
      await page.goto("about:blank");
      await console.stop();
    }
    await world.run("session", "close", session);
  });

  test("page waits for another login when the console restarts", async ({ page, world }) => {
    const { session, thread } = await world.spawn("orchestrator", "hold", "--alias", "waiter");
    const first = await world.console();
    await page.goto(first.link);
    await expect(page.getByRole("heading", { name: "Needs you" })).toBeVisible();
    const address = `${first.origin}/sessions/${session}?thread=${thread}&tab=info`;
    await page.goto(address);
    await page.getByRole("button", { name: "Steer" }).click();
    await page.getByRole("textbox", { name: "Input" }).fill("say: typed before");
    const question = page.waitForEvent("dialog");
    await page.evaluate(() => setTimeout(() => location.reload()));
    const asked = await question;
    expect(asked.type()).toBe("beforeunload");
    await asked.dismiss();
    await first.stop();

    const second = await world.console([], new URL(first.origin).host);
    await expect(page.getByRole("alert").first()).toHaveText("The login has ended. Log in again to continue where you were.");
    await expect(page).toHaveTitle("Log in – Troupe");
    await inspect(page, "login-ended");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Escape");
    await page.getByLabel("Link or code").fill(second.link);
    await page.getByRole("button", { name: "Log in" }).click();
    await expect(page.getByLabel("Link or code")).toHaveCount(0);
    await expect(page).toHaveURL(address);
    await expect(page.getByRole("textbox", { name: "Input" })).toBeFocused();
    await expect(page.getByRole("textbox", { name: "Input" })).toHaveValue("say: typed before");
    await page.getByRole("dialog").getByRole("button", { name: "Send" }).click();
    await expect(page.getByText(/sent input \d+ to the running turn/)).toBeVisible();
    await second.stop();
    await world.run("session", "close", session);
  });

  test("link continues the page in its own tab and in another", async ({ page, context, world }) => {
    const { session } = await world.spawn("orchestrator", "hold", "--alias", "patient");
    const console = await world.console();
    await page.goto(console.link);
    await expect(page.getByRole("heading", { name: "Needs you" })).toBeVisible();
    const address = `${console.origin}/sessions/${session}?filter=patient`;
    await page.goto(address);
    const row = page.getByRole("row").filter({ hasText: "patient" });
    const code = page.getByLabel("Link or code");

    // The logout ends the stream at once, like an expired login.
    const endLogin = async () => {
      await expect(row).toBeVisible();
      await page.request.post(`${console.origin}/logout`, { headers: { origin: console.origin } });
      await expect(code).toBeVisible();
    };
    const other = await context.newPage();
    await serveDist(other);
    const newLink = async () => {
      await other.goto(console.link);
      await expect(other.getByRole("alert").first()).toContainText("has expired or was used");
      return console.nextLink();
    };
    await endLogin();
    await other.goto(await newLink());
    await expect(other.getByRole("heading", { name: "Needs you" })).toBeVisible();
    await expect(code).toHaveCount(0);
    await expect(page).toHaveURL(address);

    await endLogin();
    await page.goto(await newLink());
    await expect(page).toHaveURL(address);
    await expect(row).toBeVisible();

    // Here, a call fails because of the ended login before the stream does.
    await context.clearCookies();
    await page.getByRole("button", { name: "Pause" }).click();
    await expect(code).toBeVisible();
    await console.stop();
    await world.run("session", "close", session);
  });

  test("viewer sees no actions", async ({ page, world }) => {
    const { session } = await world.spawn("orchestrator", "hold", "--alias", "watched");
    const console = await world.console(["--read-only"]);
    await page.goto(console.link);
    await expect(page.getByText("viewer", { exact: true })).toBeVisible();
    await page.goto(`${console.origin}/sessions/${session}`);
    await page.getByRole("row").filter({ hasText: "watched" }).click();
    await expect(page.getByRole("heading", { name: "orchestrator watched" })).toBeVisible();
    for (const name of ["Send", "Interrupt", "Close", "Budget", "Pause", "Mode", "Close session"]) {
      await expect(page.getByRole("button", { name, exact: true })).toHaveCount(0);
    }
    await console.stop();
    await world.run("session", "close", session);
  });
});
