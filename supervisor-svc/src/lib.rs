//! supervisor-svc: owns the tree of threads. It implements limits, mailboxes, notifications and cascade shutdown, asks
//! the registry on every spawn, and streams every change to clients.
//!
//! Dependencies point one way: `grpc -> session, watch, notify, runner_hub -> supervisor_log -> supervisor_core`. `wire`
//! converts between the domain and the API's messages.
#![forbid(unsafe_code)]

pub mod authority;
pub mod clock;
pub mod grpc;
mod limits_table;
mod measures;
pub mod notify;
mod options;
pub mod program;
pub mod registry;
pub mod runner_hub;
mod service;
pub mod session;
pub mod watch;
pub mod wire;
pub mod workspace;

use supervisor_core as domain;

pub use self::{
    authority::AUTHORITY,
    limits_table::limits,
    options::SessionOptions,
    service::{Config, OpenError, RunError, SERVICES, Supervisor, Surroundings},
};
