// Calls to the services through the server of the page, which adds the token.

import { createClient, type Interceptor } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-web";
import { AgentRegistryService } from "@troupe/client/gen/troupe/registry/v1/registry_pb";

import { ConsoleService } from "../gen/troupe/console/v1/console_pb";
import { AgentSupervisorService } from "../model/messages";
import { callErrorOf } from "./errors";

export { newRequestId as requestId } from "@troupe/client/web";

/** Maximum duration of a call without a stream. */
const TIMEOUT_MS = 30_000;
/** The options of a call without a time limit. */
export const UNLIMITED = { timeoutMs: 0 };

let onLoginEnd = (): void => undefined;

/** Runs a function when a call fails because the login has ended. */
export function whenLoginEnds(run: () => void): void {
  onLoginEnd = run;
}

const withPlainErrors: Interceptor = (next) => async (request) => {
  try {
    return await next(request);
  } catch (error) {
    const cause = callErrorOf(error);
    if (cause.isLogin) onLoginEnd();
    throw cause;
  }
};

const transport = createGrpcWebTransport({
  baseUrl: location.origin,
  interceptors: [withPlainErrors],
  defaultTimeoutMs: TIMEOUT_MS,
});

export const supervisor = createClient(AgentSupervisorService, transport);
export const registry = createClient(AgentRegistryService, transport);
export const consoleService = createClient(
  ConsoleService,
  createGrpcWebTransport({ baseUrl: location.origin, interceptors: [withPlainErrors] }),
);
