//! Infrastructure that both services share: serving, drain, health, reflection, telemetry and the caller's identity.
//!
//! **Belongs here**: code that every gRPC service of Troupe needs and that would otherwise be duplicated. **Does not
//! belong here**: code that depends on sessions, templates, stores or runners. The supervisor decides whether a thread
//! is alive, which threads are in its subtree and which tools it has; this crate only identifies the caller.
//!
//! The path of a call: [`serve`] accepts it, [`call`] bounds and times it and gives it a trace, [`auth`] finds the
//! [`identity::Principal`] and checks the permission table, then the service's own code runs.
#![forbid(unsafe_code)]

pub mod admin;
pub mod audit;
pub mod auth;
mod bounded;
pub mod call;
mod call_limits;
mod collector;
mod connection;
pub mod deadline;
pub mod duration;
pub mod encoded;
mod fresh;
pub mod held;
pub mod identity;
pub mod instruments;
pub mod jwks;
pub mod jwt;
pub mod jwt_roles;
mod limit_layer;
pub mod limits;
pub mod listen;
pub mod lock;
pub mod logging;
pub mod lost;
pub mod memo;
mod message;
pub mod metrics;
pub mod outgoing;
mod owner_counts;
pub mod paths;
pub mod peer;
pub mod private_file;
pub mod program;
mod resource;
pub mod rpc;
pub mod secret;
pub mod serve;
mod serve_limits;
pub mod settings;
pub mod shown_token;
pub mod shutdown;
pub mod stamp;
pub mod stream_limits;
pub mod telemetry;
pub mod thread_token;
pub mod tls;
pub mod token_file;
pub mod trace_context;
pub mod traces;
mod usage;
pub mod web;

/// The allocator of every program that links this crate: the services, the runner, the command line and the benchmarks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
