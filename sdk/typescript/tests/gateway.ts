// A server that translates gRPC-web into gRPC, in front of a supervisor.

import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

import { createClient, type HandlerContext } from "@connectrpc/connect";
import { connectNodeAdapter, createGrpcTransport } from "@connectrpc/connect-node";

import { AgentSupervisorService } from "../src/gen/troupe/supervisor/v1/supervisor_pb.js";

type Method = (request: unknown, options: object) => unknown;

/** The path below which the gateway serves. */
const PREFIX = "/api";

export class Gateway implements AsyncDisposable {
  /** The tokens of the calls so far. */
  readonly tokens = new Set<string | null>();
  readonly #server: Server;

  private constructor(supervisor: string) {
    const transport = createGrpcTransport({ baseUrl: supervisor });
    const upstream = createClient(AgentSupervisorService, transport) as unknown as Record<string, Method>;
    const forwarded = AgentSupervisorService.methods.map(({ localName }) => [
      localName,
      (request: unknown, { requestHeader, signal, timeoutMs }: HandlerContext) => {
        const authorization = requestHeader.get("authorization");
        this.tokens.add(authorization);
        const headers = authorization ? { authorization } : {};
        return upstream[localName]?.(request, { headers, signal, timeoutMs: timeoutMs() });
      },
    ]);
    const routes = connectNodeAdapter({
      routes: (router) => router.service(AgentSupervisorService, Object.fromEntries(forwarded)),
      requestPathPrefix: PREFIX,
      connect: false,
      grpc: false,
      maxTimeoutMs: 2_000_000,
    });
    this.#server = createServer(routes);
  }

  static async start(supervisor: string): Promise<Gateway> {
    const gateway = new Gateway(supervisor);
    await once(gateway.#server.listen(0, "127.0.0.1"), "listening");
    return gateway;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}${PREFIX}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
