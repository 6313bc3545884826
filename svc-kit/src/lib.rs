//! What both services share and neither owns: serving, drain, health, reflection, telemetry and the caller's identity.
//!
//! **May live here**: what every gRPC service of Troupe needs and what would otherwise be written twice. **May not**:
//! anything that knows a session, a template, a store or a runner. Whether a thread is still alive, what lies in its
//! subtree and which tools it has are the supervisor's to decide; this crate only says *who* calls.
//!
//! The path of a call: [`serve`] accepts it, [`call`] bounds and times it and gives it a trace, [`auth`] finds the
//! [`identity::Principal`] and asks the table of who may call what, then the service's own code runs.
#![forbid(unsafe_code)]

pub mod admin;
mod audit;
pub mod auth;
mod bounded;
pub mod call;
mod collector;
mod connection;
pub mod deadline;
pub mod encoded;
mod fresh;
pub mod held;
pub mod identity;
pub mod jwks;
pub mod jwt;
pub mod jwt_roles;
pub mod limits;
pub mod listen;
pub mod logging;
pub mod lost;
pub mod memo;
mod message;
pub mod metrics;
pub mod paths;
pub mod peer;
mod private_file;
pub mod program;
mod resource;
mod rpc;
pub mod secret;
pub mod serve;
pub mod settings;
mod share;
pub mod shown_token;
pub mod shutdown;
pub mod stamp;
mod streams;
pub mod telemetry;
pub mod thread_token;
pub mod tls;
pub mod token_file;
pub mod trace_context;
pub mod traces;
mod usage;

/// Of every program that links this crate: the services, the runner, the command line, and those that measure them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
