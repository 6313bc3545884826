// Re-exports the messages and services of the API.

export * from "@troupe/client/gen/troupe/common/v1/common_pb";
export * from "@troupe/client/gen/troupe/supervisor/v1/event_pb";
export * from "@troupe/client/gen/troupe/supervisor/v1/group_pb";
export * from "@troupe/client/gen/troupe/supervisor/v1/runner_pb";
export * from "@troupe/client/gen/troupe/supervisor/v1/session_pb";
export * from "@troupe/client/gen/troupe/supervisor/v1/supervisor_pb";
export * from "@troupe/client/gen/troupe/supervisor/v1/thread_pb";
export * from "@troupe/client/gen/troupe/supervisor/v1/transcript_pb";
