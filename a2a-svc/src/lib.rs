//! Serves exported roles as agents of the Agent2Agent protocol (A2A) v1.0, over JSON-RPC, HTTP+JSON and gRPC on one
//! port.
//!
//! The service is a client of the supervisor. A context is a session, and a task is one or more consecutive turns of
//! its root thread: further turns follow if inputs wait or the agent asked a question. `fold` computes tasks from the
//! events of a session, and `contexts` follows the sessions. `gateway` has the operations, and `http` and `grpc` are
//! their bindings. The only state of the service is the configuration of push notifications (`push`).
#![forbid(unsafe_code)]

mod caller;
mod card;
mod config;
mod contexts;
mod error;
mod fold;
mod gateway;
mod grpc;
mod http;
mod idle;
mod ids;
mod json;
mod limits;
mod metrics;
mod parts;
pub mod program;
mod push;
mod render;
mod serve;
mod upstream;

pub use a2a_proto as pb;

pub use self::{
    config::{Config, ConfigError},
    limits::limits,
    push::PushError,
    serve::{OpenError, Options, Service},
    upstream::Upstream,
};
