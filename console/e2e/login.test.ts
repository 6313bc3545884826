import { expect, inspect, serveDist, test } from "./test";

test.use({ storageState: { cookies: [], origins: [] } });
test.describe("login", () => {
  test.use({ expectedErrors: [/status of 40[13]/] });

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

  test("viewer sees no actions", async ({ page, world }) => {
    const { session } = await world.spawn("orchestrator", "hold", "--alias", "watched");
    const console = await world.console("--read-only");
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
