// The test function of all tests. A console error, a violation of the content security policy or an exception of the
// page fails the test.

import { AxeBuilder } from "@axe-core/playwright";
import { test as base, expect, type BrowserContextOptions, type Page } from "@playwright/test";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { World, type Console, type Setup } from "./world";

const DIST = fileURLToPath(new URL("../dist/", import.meta.url));
const WIDTHS = [390, 1280, 1920];

type StorageState = Exclude<BrowserContextOptions["storageState"], string | undefined>;

interface Fixtures {
  /** Patterns of console errors that the test expects. */
  readonly expectedErrors: RegExp[];
  readonly origin: string;
}

interface WorkerFixtures {
  readonly world: World;
  readonly operator: { readonly console: Console; readonly state: StorageState };
}

export const test = base.extend<Fixtures, WorkerFixtures>({
  world: [
    async ({}, use) => {
      const world = await World.start();
      await use(world);
      await world.stop();
    },
    { scope: "worker" },
  ],
  operator: [
    async ({ world, browser }, use) => {
      const console = await world.console();
      const context = await browser.newContext();
      const page = await context.newPage();
      await serveDist(page);
      await page.goto(console.link);
      await page.getByRole("heading", { name: "Needs you" }).waitFor();
      const state = await context.storageState();
      await context.close();
      await use({ console, state });
      await console.stop();
    },
    { scope: "worker" },
  ],
  origin: async ({ operator }, use) => use(operator.console.origin),
  baseURL: async ({ origin }, use) => use(origin),
  storageState: async ({ operator }, use) => use(operator.state),
  expectedErrors: async ({}, use) => use([]),
  page: async ({ page, expectedErrors }, use) => {
    const errors: string[] = [];
    page.on("pageerror", (error) => errors.push(error.stack ?? error.message));
    page.on("console", (message) => {
      if (message.type() === "error" || message.type() === "warning") errors.push(message.text());
    });
    await page.addInitScript(() => {
      addEventListener("securitypolicyviolation", (event) =>
        console.error(`policy violation: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`),
      );
    });
    await serveDist(page);
    await use(page);
    expect(errors.filter((error) => !expectedErrors.some((expected) => expected.test(error)))).toEqual([]);
  },
});

export { expect, type Page };

/** Returns the test function for a file whose tests use a separate pair. */
export function testWith(setUp: (directory: string) => Promise<Setup>) {
  return test.extend<object, Pick<WorkerFixtures, "world">>({
    world: [
      async ({}, use) => {
        const world = await World.start(setUp);
        await use(world);
        await world.stop();
      },
      { scope: "worker" },
    ],
  });
}

/** Checks the page against WCAG 2.2 AA and takes a screenshot, at each width. */
export async function inspect(page: Page, name: string): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    for (const width of WIDTHS) {
      if (colorScheme === "dark" && width === 1920) continue;
      await page.setViewportSize({ width, height: width < 500 ? 844 : 900 });
      const { violations } = await new AxeBuilder({ page })
        .withTags(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"])
        .analyze();
      const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join("\n")}`);
      expect(found, `${name} at ${width} pixels, ${colorScheme}`).toEqual([]);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      expect(overflow, `${name} at ${width} pixels is not wider than the screen`).toBeLessThanOrEqual(0);
      await page.screenshot({ path: `results/screens/${name}-${width}-${colorScheme}.png` });
    }
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 1280, height: 900 });
}

/** Replaces the files of the page by those in dist, with the headers of the server. */
export async function serveDist(page: Page): Promise<void> {
  if (!process.env["TROUPE_CONSOLE_DIST"]) return;
  const types: Record<string, string> = { js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
  await page.route(
    (url) => !/^\/(login|logout|me|troupe\.)/.test(url.pathname) || url.pathname === "/login",
    async (route) => {
      if (route.request().method() !== "GET") return route.fallback();
      const { pathname } = new URL(route.request().url());
      const isAsset = pathname.startsWith("/assets/");
      const served = await route.fetch({ url: new URL("/", route.request().url()).href });
      const headers: Record<string, string> = { ...served.headers(), "content-type": isAsset ? (types[pathname.split(".").at(-1) ?? ""] ?? "") : "text/html" };
      delete headers["content-length"];
      delete headers["etag"];
      await route.fulfill({ status: 200, headers, body: await readFile(isAsset ? DIST + pathname.slice(1) : `${DIST}index.html`) });
    },
  );
}
