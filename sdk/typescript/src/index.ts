// A client of Troupe, the control plane for trees of AI agents. The generated messages are in @troupe/client/gen.

export * from "./client.js";
export type { ConnectOptions } from "./config.js";
export * from "./errors.js";
export type { SessionEvent } from "./events.js";
export * from "./reasons.js";
export type { RetryPolicy, Supervisor } from "./rpc.js";
