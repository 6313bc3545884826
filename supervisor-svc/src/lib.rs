//! supervisor-svc: owns the tree of threads. It implements limits, mailboxes, notifications and cascade shutdown, asks
//! the registry on every spawn, and streams every change to clients.
//!
//! Dependencies point one way: `grpc -> session, watch, notify, runner_hub -> domain`, with `store` behind a trait.
//! `wire` is the only module that converts between the domain and protobuf. `domain` depends on none of the others.
//! `maintenance` works on a data directory without a service.
#![forbid(unsafe_code)]

pub mod authority;
pub mod clock;
pub mod grpc;
mod limits_table;
pub mod maintenance;
mod measures;
pub mod notify;
mod options;
pub mod program;
pub mod registry;
pub mod runner_hub;
mod service;
pub mod session;
pub mod store;
pub mod watch;
pub mod wire;
pub mod workspace;

pub use supervisor_core as domain;

pub use self::{
    authority::AUTHORITY,
    limits_table::limits,
    options::SessionOptions,
    service::{Config, OpenError, RunError, SERVICES, Supervisor, Surroundings},
};
