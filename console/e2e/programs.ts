// Settings of `troupe up` with which threads run other programs than the sample agent.

import { spawn } from "node:child_process";
import { access, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { appeared, end, type Setup } from "./world";

/** Returns a setup in which threads run the scripted agent. `scripts` has the agent's output lines by task. */
export function scriptedAgent(scripts: Readonly<Record<string, readonly string[]>> = {}): (directory: string) => Promise<Setup> {
  const program = fileURLToPath(new URL("scripted_agent.mjs", import.meta.url));
  return async (directory) => {
    const file = join(directory, "scripts.json");
    await writeFile(file, JSON.stringify(scripts));
    const agent = { kind: "process", command: process.execPath, args: [program, file], holds_read_only: true };
    return { options: await programs(directory, [agent]) };
  };
}

/** Returns a setup in which threads run Codex with the stand-in of `tests/agents` as its provider. */
export async function codex(directory: string): Promise<Setup> {
  const tools = process.env["TROUPE_TOOLS"] ?? join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "troupe-tools");
  const command = join(tools, "agents/bin/codex");
  await access(command).catch(() => Promise.reject(new Error(`${command} is missing: run tests/agents/install codex`)));
  const provider = fileURLToPath(new URL("../../tests/agents/provider", import.meta.url));
  const ready = join(directory, "provider.url");
  const standIn = spawn("python3", [provider, "--port", "0", "--ready-file", ready, "--log", join(directory, "provider.log")], {
    stdio: "ignore",
  });
  const url = (await appeared(ready, /./)).trim().replace(/\/$/, "");
  const settings = { name: "standin", base_url: `${url}/v1`, wire_api: "responses", env_key: "STANDIN_KEY" };
  const options = await programs(directory, [
    {
      kind: "codex",
      command,
      environment: { STANDIN_KEY: "sk-of-the-stand-in" },
      provider: "standin",
      settings: { model_providers: { standin: settings } },
    },
  ]);
  return { options, stop: () => end(standIn, "SIGTERM") };
}

/** Writes the files of `--programs` and `--prices` as JSON, which is also YAML. Returns the options. */
async function programs(directory: string, list: readonly object[]): Promise<string[]> {
  const [file, prices] = [join(directory, "runner.yaml"), join(directory, "prices.yaml")];
  await writeFile(file, JSON.stringify({ programs: list }));
  await writeFile(prices, JSON.stringify({ currency: "USD", models: [{ model: "**", input: 2, output: 10 }] }));
  return ["--programs", file, "--prices", prices];
}
