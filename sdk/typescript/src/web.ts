// A client for browsers. It calls `troupe console`, or another server that translates gRPC-web.

import { createGrpcWebTransport } from "@connectrpc/connect-web";

import { Client, type RetryOptions } from "./client.js";
import { ConfigError } from "./errors.js";
import { Caller, checkedToken, DEFAULT_RETRY } from "./rpc.js";

export * from "./api.js";

/** The settings of the connection. */
export interface ClientOptions extends RetryOptions {
  /** The URL of the server. Default: the origin of the page. */
  readonly address?: string;
  /** The token, or a function that returns the current one. `troupe console` needs no token: its cookie names the login. */
  readonly token?: string | (() => string);
  /** Replaces the `fetch` of the page, for example to send cookies to another origin. */
  readonly fetch?: typeof globalThis.fetch;
}

/**
 * Returns a client of the supervisor behind a server of gRPC-web.
 *
 * A stream and a wait each occupy a connection. Over plain HTTP, a browser opens at most six connections to a server.
 *
 * @throws ConfigError if the address or the token is invalid.
 */
export async function connect(options: ClientOptions = {}): Promise<Client> {
  const { address, token = "", fetch, retry, reconnectTimeoutMs } = options;
  const baseUrl = urlOf(address);
  const present = typeof token === "string" ? () => token : token;
  checkedToken(present());
  const caller = new Caller(
    (interceptor) => ({
      transport: createGrpcWebTransport({ baseUrl, interceptors: [interceptor], ...(fetch && { fetch }) }),
      // The calls end with their signals. Connections belong to the browser.
      close: () => undefined,
    }),
    { isFound: false, expose: () => checkedToken(present()) },
    { ...DEFAULT_RETRY, ...retry },
  );
  return new Client(caller, reconnectTimeoutMs);
}

/** Returns the URL without a slash at its end. A relative address is relative to the page. */
function urlOf(address: string | undefined): string {
  const { location } = globalThis as { readonly location?: { readonly href: string } };
  try {
    const { protocol, origin, pathname } = new URL(address || "/", location?.href);
    if (protocol === "http:" || protocol === "https:") return `${origin}${pathname}`.replace(/\/+$/, "");
  } catch {
    // Continues with the error below.
  }
  throw new ConfigError(`invalid address of the server: "${address ?? ""}"; expected a URL like https://console.example.org`);
}
