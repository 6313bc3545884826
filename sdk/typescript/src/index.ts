// A client of Troupe, the control plane for trees of AI agents, for Node.js. The client for browsers is @troupe/client/web, and
// the generated messages are in @troupe/client/gen.

export * from "./api.js";
export type { ConnectOptions } from "./config.js";
export { type ClientOptions, connect } from "./node.js";
