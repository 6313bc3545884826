// The messages and services of the API, from one place.

export * from "@sdk/troupe/common/v1/common_pb.js";
export * from "@sdk/troupe/supervisor/v1/event_pb.js";
export * from "@sdk/troupe/supervisor/v1/group_pb.js";
export * from "@sdk/troupe/supervisor/v1/runner_pb.js";
export * from "@sdk/troupe/supervisor/v1/session_pb.js";
export * from "@sdk/troupe/supervisor/v1/supervisor_pb.js";
export * from "@sdk/troupe/supervisor/v1/thread_pb.js";
export * from "@sdk/troupe/supervisor/v1/transcript_pb.js";
