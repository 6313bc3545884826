//! The gRPC service for clients, as a thin layer. A handler validates the request, locates the session and the caller,
//! sends a command to the session, and converts the result. It contains no domain rules.

mod agreement;
mod approvals;
mod artifacts;
mod authorize;
mod budget;
mod call;
mod check;
mod content;
mod diff;
mod graph;
mod inherited;
pub(crate) mod limits;
mod listing;
mod mailbox;
mod marks;
mod notifications;
mod page;
mod prompts;
mod reads;
mod resolved;
mod retention;
mod rollups;
mod route;
mod service;
mod sessions;
mod settings;
mod spawn;
mod status;
mod threads;
mod tools;
mod wait;
mod watch;
mod webhooks;

pub use self::{
    service::{ServiceConfig, SupervisorService},
    wait::WaitLimits,
};
