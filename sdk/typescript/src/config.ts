// The address and the token of the supervisor, found as the `troupe` command finds them.
//
// The address: the option, TROUPE_SUPERVISOR_URL, http://127.0.0.1:50052. The token: the option, TROUPE_TOKEN, the file of
// the option or of TROUPE_TOKEN_FILE, operator.token in the data directory, none. A token from the default data directory is
// sent to this machine only. The certificates: the options, TROUPE_CA, TROUPE_CLIENT_CERT and TROUPE_CLIENT_KEY.

import { readFileSync, statSync } from "node:fs";
import { BlockList, isIP } from "node:net";
import { isAbsolute, join } from "node:path";

import { ConfigError } from "./errors.js";

const DEFAULT_ADDRESS = "http://127.0.0.1:50052";
const TOKEN_FILE = "operator.token";

/** Where the supervisor is, and the caller's token. */
export interface ConnectOptions {
  /** The URL of the supervisor, or its `host:port`. */
  readonly address?: string;
  readonly token?: string;
  /** A file with the token in its first line. */
  readonly tokenFile?: string;
  /** The data directory of `troupe up`. */
  readonly dataDir?: string;
  /** A PEM file with the authorities of the supervisor's certificate. */
  readonly ca?: string;
  /** A PEM file with the client's certificate. */
  readonly clientCert?: string;
  /** A PEM file with its key. */
  readonly clientKey?: string;
}

/** The supervisor to connect to. */
export interface Target {
  readonly url: string;
  readonly tls: { readonly ca?: Buffer; readonly cert?: Buffer; readonly key?: Buffer };
  readonly token: Token;
}

/** A token and its source. */
export class Token {
  #text = "";
  readonly #path: string | undefined;
  #version = "";

  constructor(
    source: { readonly text?: string; readonly path?: string },
    /** Whether it comes from the data directory and not from the caller. It may then belong to another service. */
    readonly isFound = false,
  ) {
    this.#path = source.path;
    if (source.text) this.#text = checked(source.text);
    if (source.path !== undefined) this.#load(source.path);
  }

  /** Returns the token, or an empty text without one. A file is read again after a change. */
  expose(): string {
    if (this.#path !== undefined) {
      try {
        this.#load(this.#path);
      } catch {
        // The file is being replaced: the last token stays valid until the next call.
      }
    }
    return this.#text;
  }

  #load(path: string): void {
    let text: string;
    let version: string;
    try {
      const { mtimeNs, ino } = statSync(path, { bigint: true });
      version = `${mtimeNs} ${ino}`;
      if (version === this.#version) return;
      text = readFileSync(path, "utf8");
    } catch (error) {
      throw new ConfigError(`cannot read the token file ${path}: ${String(error)}`);
    }
    const first = firstLine(text);
    if (!first) throw new ConfigError(`there is no token in ${path}`);
    this.#text = checked(first);
    this.#version = version;
  }
}

/** Returns the target of these options and of the environment. */
export function find(options: ConnectOptions): Target {
  const ca = options.ca ?? variable("TROUPE_CA");
  const cert = options.clientCert ?? variable("TROUPE_CLIENT_CERT");
  const key = options.clientKey ?? variable("TROUPE_CLIENT_KEY");
  const hasFiles = Boolean(ca ?? cert ?? key);
  const given = (options.address ?? variable("TROUPE_SUPERVISOR_URL") ?? DEFAULT_ADDRESS).trim();
  const url = parse(given.includes("://") ? given : `${hasFiles ? "https" : "http"}://${given}`);
  const host = url.hostname.replace(/^\[|\]$/g, "");
  if (hasFiles && url.protocol === "http:" && !isThisMachine(host)) {
    throw new ConfigError(`certificates are given, but "${given}" does not use TLS; use a URL that begins with https`);
  }
  if (Boolean(cert) !== Boolean(key)) {
    throw new ConfigError("a client certificate needs its key, and a key its certificate");
  }
  const files = url.protocol === "https:" ? { ca, cert, key } : {};
  return {
    url: url.origin,
    tls: Object.fromEntries(Object.entries(files).flatMap(([name, path]) => (path ? [[name, read(path)]] : []))),
    token: findToken(host, options),
  };
}

/** Returns whether a host is a loopback address or `localhost`. */
export function isThisMachine(host: string): boolean {
  const family = isIP(host);
  return family === 0 ? host.toLowerCase() === "localhost" : LOOPBACK.check(host, family === 4 ? "ipv4" : "ipv6");
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

function findToken(host: string, options: ConnectOptions): Token {
  const text = (options.token || variable("TROUPE_TOKEN") || "").trim();
  if (text) return new Token({ text });
  const file = options.tokenFile ?? variable("TROUPE_TOKEN_FILE");
  if (file) return new Token({ path: file });
  let directory = options.dataDir ?? variable("TROUPE_DATA_DIR");
  if (!directory && isThisMachine(host)) directory = defaultDataDir();
  if (!directory) return new Token({});
  const path = join(directory, TOKEN_FILE);
  try {
    if (!firstLine(readFileSync(path, "utf8"))) return new Token({});
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return new Token({});
    throw new ConfigError(`cannot read the token file ${path}: ${String(error)}`);
  }
  return new Token({ path }, true);
}

function defaultDataDir(): string | undefined {
  const data = variable("XDG_DATA_HOME");
  if (data && isAbsolute(data)) return join(data, "troupe");
  const home = variable("HOME");
  return home && isAbsolute(home) ? join(home, ".local", "share", "troupe") : undefined;
}

function parse(text: string): URL {
  try {
    const url = new URL(text);
    if ((url.protocol === "http:" || url.protocol === "https:") && url.hostname) return url;
  } catch {
    // Falls through to the error below.
  }
  throw new ConfigError(`invalid address of the supervisor: "${text}"; expected a URL like ${DEFAULT_ADDRESS}`);
}

function read(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new ConfigError(`cannot read a certificate: ${String(error)}`);
  }
}

function checked(token: string): string {
  if (/^[!-~]*$/.test(token)) return token;
  throw new ConfigError("the token has characters that cannot be sent; it is visible ASCII");
}

function firstLine(text: string): string {
  return text.split("\n").map((line) => line.trim()).find(Boolean) ?? "";
}

function variable(name: string): string | undefined {
  return process.env[name] || undefined;
}
