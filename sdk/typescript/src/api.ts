// The common exports of the entry points for Node.js and for browsers.

export * from "./client.js";
export { readContent, textOf } from "./content.js";
export * from "./errors.js";
export type { EventCommon, EventDecisions, EventKinds, KnownEvent, SessionEvent } from "./events.js";
export { allPages, type Page } from "./pages.js";
export * from "./reasons.js";
export { newRequestId, type RetryPolicy, serviceError, type Supervisor } from "./rpc.js";
export {
  type JsonSchema,
  type Schema,
  type SchemaIssue,
  type SchemaOutcome,
  type StandardSchemaProps,
  type StandardSchemaV1,
  type TypedSchema,
  withJsonSchema,
} from "./schema.js";
