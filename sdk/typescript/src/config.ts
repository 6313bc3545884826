// The address and the token of the supervisor, found as the `troupe` command finds them.
//
// Each value comes from the first of its sources that has one:
//
// - Address: the option, TROUPE_SUPERVISOR_URL, the context, the services that `troupe up` runs on the data directory,
//   http://127.0.0.1:50052.
// - Token: the option, TROUPE_TOKEN, the token file, operator.token in the data directory. The option,
//   TROUPE_TOKEN_FILE or the context names the token file. A token from the default data directory is sent to this
//   machine only.
// - Certificates: the options, TROUPE_CA, TROUPE_CLIENT_CERT and TROUPE_CLIENT_KEY, the context.
// - Context: the option, TROUPE_CONTEXT, the current context in ~/.config/troupe/config.yaml.
//
// An address from the option or from TROUPE_SUPERVISOR_URL selects another server. No context applies then, unless the
// option or TROUPE_CONTEXT names one.

import { existsSync, readFileSync, statSync } from "node:fs";
import { BlockList, isIP } from "node:net";
import { isAbsolute, join } from "node:path";

import { parse as parseYaml } from "yaml";

import { ConfigError } from "./errors.js";
import { checkedToken, type TokenSource } from "./rpc.js";

const DEFAULT_ADDRESS = "http://127.0.0.1:50052";
const TOKEN_FILE = "operator.token";
/** The state of `troupe up` in the data directory. */
const STATE_FILE = "up.json";

/** The address of the supervisor, and the caller's credentials. */
export interface ConnectOptions {
  /** The URL of the supervisor, or its `host:port`. */
  readonly address?: string;
  /** A context of `troupe context`. */
  readonly context?: string;
  readonly token?: string;
  /** A file with the token in its first line. */
  readonly tokenFile?: string;
  /** The data directory of `troupe up`. */
  readonly dataDir?: string;
  /** A PEM file with the authorities of the supervisor's certificate. */
  readonly ca?: string;
  /** A PEM file with the client's certificate. */
  readonly clientCert?: string;
  /** A PEM file with the key of the client's certificate. */
  readonly clientKey?: string;
}

/** The supervisor to connect to. */
export interface Target {
  readonly url: string;
  readonly tls: { readonly ca?: Buffer; readonly cert?: Buffer; readonly key?: Buffer };
  readonly token: Token;
}

/** A token and its source. */
export class Token implements TokenSource {
  #text = "";
  readonly #path: string | undefined;
  #version = "";

  constructor(
    source: { readonly text?: string; readonly path?: string },
    /** Whether the token comes from the data directory and not from the caller. */
    readonly isFound = false,
  ) {
    this.#path = source.path;
    if (source.text) this.#text = checkedToken(source.text);
    if (source.path !== undefined) this.#load(source.path);
  }

  /** Returns the token, or an empty text if there is no token. Reads a token file again after a change. */
  expose(): string {
    if (this.#path !== undefined) {
      try {
        this.#load(this.#path);
      } catch {
        // The file may be incomplete because it is being replaced. Use the last token for this call.
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
    this.#text = checkedToken(first);
    this.#version = version;
  }
}

/** Returns the target of these options and of the environment. */
export function find(options: ConnectOptions): Target {
  const named = options.context ?? variable("TROUPE_CONTEXT");
  const chosen = (options.address ?? variable("TROUPE_SUPERVISOR_URL") ?? "").trim();
  const server = chosen && !named ? {} : context(named);
  const given = chosen || server["supervisor"] || running(options.dataDir) || DEFAULT_ADDRESS;
  const ca = options.ca ?? variable("TROUPE_CA") ?? server["ca"];
  let cert = options.clientCert ?? variable("TROUPE_CLIENT_CERT");
  let key = options.clientKey ?? variable("TROUPE_CLIENT_KEY");
  if (!cert && !key) [cert, key] = [server["client_cert"], server["client_key"]];
  const hasFiles = Boolean(ca ?? cert ?? key);
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
    token: findToken(host, options, server["token_file"]),
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

/** Returns the settings of the context with this name. Without a name, returns those of the current context. */
function context(name: string | undefined): Record<string, string> {
  const base = variable("XDG_CONFIG_HOME") ?? "";
  const path = join(isAbsolute(base) ? base : join(variable("HOME") ?? "", ".config"), "troupe", "config.yaml");
  let config: Record<string, unknown> = {};
  if (isAbsolute(path) && existsSync(path)) {
    try {
      config = mapping(parseYaml(readFileSync(path, "utf8")));
    } catch (error) {
      throw new ConfigError(`cannot read the contexts in ${path}: ${String(error)}`);
    }
  }
  const current = config["current"];
  const wanted = name ?? (typeof current === "string" ? current : "");
  if (!wanted) return {};
  const server = Object.entries(mapping(mapping(config["contexts"])[wanted]));
  if (server.length === 0) {
    throw new ConfigError(`unknown context "${wanted}"; \`troupe context list\` lists the contexts`);
  }
  return Object.fromEntries(server.flatMap(([key, value]) => (typeof value === "string" ? [[key, value]] : [])));
}

/** Returns the value if it is a mapping of YAML or JSON, and otherwise an empty mapping. */
function mapping(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : {};
}

/** Returns the address of the supervisor that `troupe up` runs on the data directory. Empty if none runs. */
function running(given: string | undefined): string {
  const directory = given ?? variable("TROUPE_DATA_DIR") ?? defaultDataDir();
  if (!directory) return "";
  let url: string;
  try {
    const state = mapping(JSON.parse(readFileSync(join(directory, STATE_FILE), "utf8")));
    // A killed process leaves its file behind, so check that the process exists.
    process.kill(Number(state["pid"]), 0);
    url = `http://${String(state["supervisor"])}`;
    return isThisMachine(new URL(url).hostname.replace(/^\[|\]$/g, "")) ? url : "";
  } catch {
    return "";
  }
}

function findToken(host: string, options: ConnectOptions, ofContext: string | undefined): Token {
  const text = (options.token || variable("TROUPE_TOKEN") || "").trim();
  if (text) return new Token({ text });
  const file = options.tokenFile ?? variable("TROUPE_TOKEN_FILE") ?? ofContext;
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

function firstLine(text: string): string {
  return text.split("\n").map((line) => line.trim()).find(Boolean) ?? "";
}

function variable(name: string): string | undefined {
  return process.env[name] || undefined;
}
