// The connection to a pair: addresses and token from the environment, one channel per service, the token and the
// deadline.

import {
  type CallOptions,
  type Channel,
  type Client,
  type ClientMiddleware,
  type ClientMiddlewareCall,
  Metadata,
  createChannel,
  createClientFactory,
} from "nice-grpc";
import { errorDetailsClientMiddleware } from "nice-grpc-error-details";

import { AgentRegistryServiceDefinition } from "../generated/troupe/registry/v1/registry.js";
import { AgentSupervisorServiceDefinition } from "../generated/troupe/supervisor/v1/supervisor.js";

/** Longer than any call takes on a busy machine. A call without a deadline may wait forever. */
export const DEADLINE_MS = 60_000;

/** The addresses of a pair, the caller's token, and the directory of the sessions. */
export interface Pair {
  readonly registry: string;
  readonly supervisor: string;
  readonly token: string;
  readonly project: string;
}

/** Returns the pair of the TROUPE_ variables. */
export function pairFromEnvironment(): Pair {
  const variable = (name: string): string => {
    const value = process.env[name];
    if (!value) throw new Error(`${name} is not set`);
    return value;
  };
  return {
    registry: variable("TROUPE_REGISTRY"),
    supervisor: variable("TROUPE_SUPERVISOR"),
    token: variable("TROUPE_TOKEN"),
    project: variable("TROUPE_PROJECT"),
  };
}

/** An open connection to a pair. */
export class Troupe {
  readonly registry: Client<typeof AgentRegistryServiceDefinition>;
  readonly supervisor: Client<typeof AgentSupervisorServiceDefinition>;
  readonly project: string;
  readonly #channels: readonly Channel[];

  constructor(pair: Pair) {
    this.project = pair.project;
    // The services use plaintext. With a proxy that adds TLS, use an https address.
    const registry = createChannel(pair.registry);
    const supervisor = createChannel(pair.supervisor);
    this.#channels = [registry, supervisor];
    const factory = createClientFactory()
      .use(errorDetailsClientMiddleware)
      .use(authorization(pair.token))
      .use(deadline);
    this.registry = factory.create(AgentRegistryServiceDefinition, registry);
    this.supervisor = factory.create(AgentSupervisorServiceDefinition, supervisor);
  }

  close(): void {
    for (const channel of this.#channels) channel.close();
  }
}

/** Sends the token with every call, including streams. */
function authorization(token: string): ClientMiddleware {
  return async function* <Request, Response>(call: ClientMiddlewareCall<Request, Response>, options: CallOptions) {
    const metadata = Metadata(options.metadata).set("authorization", `Bearer ${token}`);
    return yield* call.next(call.request, { ...options, metadata });
  };
}

/** Sets a deadline for unary calls. Streams have none, because an idle session sends nothing for a long time. */
async function* deadline<Request, Response>(call: ClientMiddlewareCall<Request, Response>, options: CallOptions) {
  if (call.responseStream) return yield* call.next(call.request, options);
  const signal = AbortSignal.timeout(DEADLINE_MS);
  return yield* call.next(call.request, { ...options, signal });
}
