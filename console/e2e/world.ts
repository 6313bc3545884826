// A pair of services with its consoles. By default, the sample agent runs the threads; it calls no model.

import { execFile, spawn, type ChildProcess } from "node:child_process";
import { on, once } from "node:events";
import { watch } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, request as send, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const TROUPE = process.env["TROUPE"] ?? fileURLToPath(new URL("../../target/debug/troupe", import.meta.url));

interface Addresses {
  readonly registry: string;
  readonly supervisor: string;
}

export interface Console {
  /** The one-time login link. */
  readonly link: string;
  readonly origin: string;
  /** Returns the next login link, which the console prints when an old link is opened. */
  readonly nextLink: () => Promise<string>;
  readonly stop: () => Promise<void>;
}

export interface Spawned {
  readonly session: string;
  readonly thread: string;
}

/** Additional settings of a pair. */
export interface Setup {
  /** Options of `troupe up`. */
  readonly options: readonly string[];
  readonly stop?: () => Promise<void>;
}

/** Returns the line that makes the sample agent call a tool. */
export function toolCall(name: string, args: Record<string, unknown>): string {
  return JSON.stringify({ tool_call: { name, args } });
}

export class World {
  /** A project directory for sessions. */
  readonly project: string;
  readonly #directory: string;
  #addresses: Addresses;
  #pair: ChildProcess | undefined;
  #setup: Setup = { options: [] };

  private constructor(directory: string) {
    this.#directory = directory;
    this.project = join(directory, "home", "parser");
    this.#addresses = { registry: "127.0.0.1:0", supervisor: "127.0.0.1:0" };
  }

  /** Starts a pair in a new directory, which `setUp` may prepare. */
  static async start(setUp?: (directory: string) => Promise<Setup>): Promise<World> {
    const world = new World(await mkdtemp(join(tmpdir(), "troupe-console-")));
    await mkdir(join(world.project, ".git"), { recursive: true });
    if (setUp) world.#setup = await setUp(world.#directory);
    await world.startPair();
    return world;
  }

  /** Starts the services. After a stop, the services start with the same addresses. */
  async startPair(): Promise<void> {
    const ready = join(this.#directory, "ready.json");
    await rm(ready, { force: true });
    const { registry, supervisor } = this.#addresses;
    this.#pair = spawn(
      TROUPE,
      ["up", "--registry-listen", registry, "--supervisor-listen", supervisor, "--ready-file", ready, ...this.#data(), ...this.#setup.options],
      { cwd: this.#directory, stdio: "ignore", env: this.#env() },
    );
    this.#addresses = JSON.parse(await appeared(ready, /}\s*$/)) as Addresses;
  }

  /** Kills the services, to simulate a crash. */
  async killPair(): Promise<void> {
    await end(this.#pair, "SIGKILL");
  }

  async stop(): Promise<void> {
    await end(this.#pair, "SIGTERM");
    await this.#setup.stop?.();
    await rm(this.#directory, { recursive: true, force: true });
  }

  /** Runs a command and returns its JSON output. */
  async run<T = unknown>(...args: string[]): Promise<T> {
    const { stdout } = await promisify(execFile)(TROUPE, [...args, ...this.#connection(), "--output", "json"], {
      cwd: this.project,
      env: this.#env(),
      maxBuffer: 64 * 1024 * 1024,
    });
    return JSON.parse(stdout) as T;
  }

  /** Spawns an agent. Without the option `--session`, the agent is the first one of a new session. */
  async spawn(role: string, message: string, ...options: string[]): Promise<Spawned> {
    const answer = await this.run<{ session_id: string; thread: { thread_id: string } }>(
      ...["spawn", role, "--message", message, "--cwd", this.project, ...options],
    );
    return { session: answer.session_id, thread: answer.thread.thread_id };
  }

  /** Starts a console behind a proxy that logs in the person `user`. */
  async consoleFor(user: string, ...options: string[]): Promise<Console> {
    const secret = "proxy-secret-0123456789";
    const file = join(this.#directory, "proxy.token");
    await writeFile(file, secret, { mode: 0o600 });
    const probe = createServer();
    const port = await listen(probe);
    probe.close();
    const proxy = createServer((request, response) => {
      const headers = { ...request.headers, "x-troupe-proxy-secret": secret, "x-forwarded-email": user };
      const options = { host: "127.0.0.1", port, method: request.method, path: request.url, headers };
      const forwarded = send(options, (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      });
      forwarded.on("error", () => response.destroy());
      response.on("close", () => forwarded.destroy());
      request.pipe(forwarded);
    });
    const url = `http://localhost:${await listen(proxy)}`;
    const console = await this.console(["--public-url", url, "--proxy-secret-file", file, ...options], `127.0.0.1:${port}`);
    const stop = async () => {
      proxy.close();
      proxy.closeAllConnections();
      await console.stop();
    };
    return { ...console, stop };
  }

  /** Serves the page, by default at a free port. */
  async console(options: readonly string[] = [], listen = "127.0.0.1:0"): Promise<Console> {
    const args = ["console", "--listen", listen, "--output", "json", ...options, ...this.#connection()];
    const child = spawn(TROUPE, args, { env: this.#env(), stdio: ["ignore", "pipe", "ignore"] });
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
    const nextLink = async () => (JSON.parse((await lines.next()).value as string) as { link: string }).link;
    const link = await nextLink();
    return { link, origin: new URL(link).origin, nextLink, stop: () => end(child, "SIGTERM") };
  }

  #data(): string[] {
    return ["--data-dir", join(this.#directory, "data"), "--home", join(this.#directory, "home")];
  }

  #connection(): string[] {
    const { registry, supervisor } = this.#addresses;
    const data = join(this.#directory, "data");
    return ["--registry", `http://${registry}`, "--supervisor", `http://${supervisor}`, "--data-dir", data];
  }

  #env(): NodeJS.ProcessEnv {
    return { PATH: process.env["PATH"], HOME: join(this.#directory, "home") };
  }
}

/** Binds a free port of this machine and returns it. */
async function listen(server: Server): Promise<number> {
  await once(server.listen(0, "localhost"), "listening");
  return (server.address() as AddressInfo).port;
}

/** Waits until a file exists and its text matches. Returns the text. */
export async function appeared(path: string, complete: RegExp): Promise<string> {
  // The watch starts before the first read, so that no change is missed.
  const watcher = watch(join(path, ".."));
  const changes = on(watcher, "change", { signal: AbortSignal.timeout(30_000) });
  const read = async () => {
    const text = await readFile(path, "utf8").catch(() => "");
    return complete.test(text) ? text : undefined;
  };
  try {
    for (;;) {
      const text = await read();
      if (text !== undefined) return text;
      await changes.next();
    }
  } finally {
    watcher.close();
  }
}

export async function end(child: ChildProcess | undefined, signal: NodeJS.Signals): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill(signal);
  await ended;
}
