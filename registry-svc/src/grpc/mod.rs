//! The gRPC layer: request limits, conversion and errors. Rules live in the domain.

mod agents;
mod bounds;
pub(crate) mod call;
mod convert;
mod describe;
mod findings;
pub(crate) mod limits;
mod page;
pub(crate) mod response_cache;
mod route;
pub(crate) mod server;
mod service;
mod spawn;
mod status;
pub(crate) mod watch;
mod workspace;
