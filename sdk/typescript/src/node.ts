// The connection of a Node.js program: gRPC over HTTP/2.

import { resolve } from "node:path";

import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import { Client, type RetryOptions } from "./client.js";
import { type ConnectOptions, find } from "./config.js";
import { Caller, DEFAULT_RETRY } from "./rpc.js";

const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

/** The settings of the connection. */
export interface ClientOptions extends ConnectOptions, RetryOptions {}

/**
 * Returns a client of the supervisor. Without options, it finds address and token as the `troupe` command does.
 *
 * The client connects with the first call, and again whenever the connection is lost. Use it with `await using`.
 *
 * @throws ConfigError if an address, a token file or a certificate is invalid.
 */
export async function connect(options: ClientOptions = {}): Promise<Client> {
  const { url, tls, token } = find(options);
  // Keep-alive pings end a connection to an unreachable machine.
  const sessionManager = new Http2SessionManager(url, { pingIntervalMs: 20_000, pingTimeoutMs: 10_000 }, tls);
  const caller = new Caller(
    (interceptor) => ({
      transport: createGrpcTransport({
        baseUrl: url,
        sessionManager,
        interceptors: [interceptor],
        readMaxBytes: MAX_MESSAGE_BYTES,
      }),
      close: () => sessionManager.abort(),
    }),
    token,
    { ...DEFAULT_RETRY, ...options.retry },
  );
  return new Client(caller, options.reconnectTimeoutMs, resolve);
}
