// A session that is too large to run in a test: a server in front of a console answers the calls about this session.

import { once } from "node:events";
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { build } from "vite";

import type * as Snapshot from "./snapshot";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
/** The time between the changes of the session. */
const CHANGE_MS = 50;

export interface Served {
  /** The URL of the session's page. */
  readonly address: string;
  readonly threads: number;
  readonly close: () => void;
}

async function bundled(): Promise<typeof Snapshot> {
  const outDir = `${ROOT}/results/bundle`;
  await build({
    root: ROOT,
    logLevel: "warn",
    ssr: { noExternal: true },
    build: { ssr: "e2e/snapshot.ts", outDir },
  });
  return (await import(`${outDir}/snapshot.js`)) as typeof Snapshot;
}

/** Serves the page of the console at `origin` with the session of `snapshot.ts`, which changes all the time. */
export async function serve(origin: string): Promise<Served> {
  const { answer, changes, watched, SESSION, THREADS } = await bundled();
  const grpc = { "content-type": "application/grpc-web+proto" };
  const start = watched();
  const server = createServer(async (request, response) => {
    const [service, method] = (request.url ?? "").split("/").slice(1);
    const body = await buffer(request);
    if (service === "troupe.console.v1.ConsoleService") {
      response.writeHead(200, grpc).write(start);
      let part = 0;
      const timer = setInterval(() => response.write(changes((part += 1))), CHANGE_MS);
      response.on("close", () => clearInterval(timer));
      return;
    }
    const answered = service === "troupe.supervisor.v1.AgentSupervisorService" ? answer(method ?? "", body) : undefined;
    if (answered) response.writeHead(200, grpc).end(answered);
    else forward(origin, request, body, response);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { address: `http://127.0.0.1:${port}/sessions/${SESSION}`, threads: THREADS, close };
}

function forward(origin: string, { url = "", method, headers }: IncomingMessage, body: Buffer, response: ServerResponse): void {
  const { host } = new URL(origin);
  const forwarded = httpRequest(new URL(url, origin), { method, headers: { ...headers, host, ...(headers.origin && { origin }) } });
  forwarded.on("response", (answered) => answered.pipe(response.writeHead(answered.statusCode ?? 502, answered.headers)));
  forwarded.end(body);
}
