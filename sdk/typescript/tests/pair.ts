// A running pair of services, and a relay that loses connections.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { createConnection, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createServer as createTlsServer, type TlsOptions } from "node:tls";

import { type Client, type ClientOptions, connect } from "../src/index.js";

/** The maximum duration of a step, even on a busy machine. */
export const DEADLINE_MS = 60_000;

/** Returns a signal that ends a wait. */
export const deadline = (): { signal: AbortSignal } => ({ signal: AbortSignal.timeout(DEADLINE_MS) });

/** Fails unless the promise settles in time. */
export async function inTime<T>(promise: Promise<T>, ms = DEADLINE_MS): Promise<T> {
  const late = new AbortController();
  const timeout = sleep(ms, undefined, { signal: late.signal }).then(() => assert.fail("no result in time"));
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    timeout.catch(() => undefined);
    late.abort();
  }
}

/** Both services in one process, `troupe up`, with data of its own. It can be killed and started again. */
export class Pair implements AsyncDisposable {
  readonly directory = mkdtempSync(join(tmpdir(), "troupe-sdk-"));
  readonly project = join(this.directory, "project");
  readonly data = join(this.directory, "data");
  #listen = ["127.0.0.1:0", "127.0.0.1:0"];
  #process: ChildProcess | undefined;

  /** Starts a pair with these additional arguments. */
  static async start(...args: string[]): Promise<Pair> {
    const pair = new Pair(args);
    mkdirSync(pair.project);
    await pair.start();
    return pair;
  }

  private constructor(private readonly args: string[]) {}

  get url(): string {
    return `http://${this.#listen[1]}`;
  }

  /** Starts the pair, at the addresses of its first start, and waits until it serves. */
  async start(): Promise<void> {
    const ready = join(this.directory, "ready.json");
    rmSync(ready, { force: true });
    const log = openSync(join(this.directory, "log"), "a");
    const [registry = "", supervisor = ""] = this.#listen;
    this.#process = spawn(
      resolve(process.env.TROUPE_BIN ?? "", "troupe"),
      [
        ...["up", "--data-dir", this.data, "--home", this.directory, "--workspace-root", this.directory],
        ...["--ready-file", ready, "--registry-listen", registry, "--supervisor-listen", supervisor, ...this.args],
      ],
      { stdio: ["ignore", log, log], env: { HOME: this.directory, PATH: process.env.PATH } },
    );
    const until = performance.now() + DEADLINE_MS;
    while (!existsSync(ready)) {
      if (this.#process.exitCode !== null || performance.now() > until) {
        throw new Error(`the pair does not start: ${readFileSync(join(this.directory, "log"), "utf8")}`);
      }
      await sleep(20);
    }
    const addresses = JSON.parse(readFileSync(ready, "utf8")) as { registry: string; supervisor: string };
    this.#listen = [addresses.registry, addresses.supervisor].map((address) => address.replace("http://", ""));
  }

  /** Sends the process a signal. If the signal ends or stops the process, waits until it has ended or stopped. */
  async send(signal: NodeJS.Signals): Promise<void> {
    const ended = signal === "SIGKILL" && this.#process ? once(this.#process, "exit") : undefined;
    this.#process?.kill(signal);
    await ended;
    // The threads of the process run until each has taken the signal.
    while (signal === "SIGSTOP" && !this.#isStopped()) await sleep(1);
  }

  #isStopped(): boolean {
    const status = readFileSync(`/proc/${this.#process?.pid}/stat`, "utf8");
    return status.slice(status.lastIndexOf(")")).startsWith(") T");
  }

  /** Returns a client of the pair. */
  connect(options: ClientOptions = {}): Promise<Client> {
    return connect({ address: this.url, dataDir: this.data, ...options });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#process?.exitCode === null && this.#process.signalCode === null) await this.send("SIGKILL");
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** A TCP relay in front of the supervisor. It can withhold responses and drop its connections. */
export class Relay implements AsyncDisposable {
  /** Whether bytes from the supervisor are discarded. */
  withholds = false;
  /** The number of connections that were made. */
  connections = 0;
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  readonly #scheme: string;

  private constructor(target: string, tls: TlsOptions | undefined) {
    const { hostname, port } = new URL(target);
    const serve = (client: Socket): void => {
      this.connections += 1;
      const server = createConnection(Number(port), hostname);
      for (const socket of [client, server]) {
        this.#sockets.add(socket);
        socket.on("error", () => undefined);
        socket.on("close", () => {
          this.#sockets.delete(socket);
          client.destroy();
          server.destroy();
        });
      }
      client.on("data", (data) => server.write(data));
      server.on("data", (data) => this.withholds || client.write(data));
    };
    this.#server = tls ? createTlsServer(tls, serve) : createServer(serve);
    this.#scheme = tls ? "https" : "http";
  }

  /** Starts a relay, with TLS if `tls` is given. */
  static async start(target: string, tls?: TlsOptions): Promise<Relay> {
    const relay = new Relay(target, tls);
    relay.#server.listen(0, "127.0.0.1");
    await once(relay.#server, "listening");
    return relay;
  }

  get url(): string {
    const address = this.#server.address();
    return `${this.#scheme}://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
  }

  /** Closes all connections. New ones are accepted. */
  drop(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.drop();
  }
}
