//! The gRPC service for clients, as a thin layer. A handler validates the request, locates the session and the caller,
//! sends a command to the session, and converts the result. It contains no domain rules.

mod approvals;
pub(crate) mod call;
pub(crate) mod content;
mod diff;
mod export;
pub(crate) mod graph;
pub(crate) mod groups;
pub(crate) mod marks;
mod members;
mod methods;
pub(crate) mod page;
pub(crate) mod parse;
pub(crate) mod prompts;
pub(crate) mod results;
mod runners;
pub(crate) mod service;
pub(crate) mod sessions;
pub(crate) mod spawn;
mod table;
mod threads;
mod tools;
pub(crate) mod transcripts;
pub(crate) mod wait;
pub(crate) mod watch;
mod watch_route;

pub(crate) use self::{
    service::{MAX_READS, SupervisorService},
    watch_route::WatchMethod,
};
pub use self::{table::AUTHORITY, wait::MAX_WAIT};
