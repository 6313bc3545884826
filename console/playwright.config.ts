import { defineConfig } from "@playwright/test";

// The tests start their own services and use Debian's Chromium. `TROUPE` names the binary under test, and
// `TROUPE_CONSOLE_DIST=1` tests the files in dist with a binary that embeds others.
export default defineConfig({
  testDir: "e2e",
  outputDir: "results/failures",
  workers: 1,
  timeout: 120_000,
  expect: { timeout: 15_000 },
  reporter: [["list"]],
  use: {
    browserName: "chromium",
    trace: "retain-on-failure",
    launchOptions: {
      executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
      chromiumSandbox: false,
    },
  },
});
