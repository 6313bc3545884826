//! supervisor-svc: owns the tree of threads. It implements limits, mailboxes, notifications and cascade shutdown, asks
//! the registry on every spawn, and streams every change to clients.
//!
//! Dependencies point one way: `rpc -> use_cases -> runners -> engine -> domain`, and `projections` read the engine's
//! commit feed. `cluster` forwards calls between supervisors. The log's store and codecs are the crate
//! `supervisor-log`; the rules are the crate `supervisor-core`.
#![forbid(unsafe_code)]

mod backups;
pub mod clock;
mod cluster;
mod cluster_options;
mod config;
pub mod convert;
pub mod engine;
mod limits;
mod options;
mod prices;
pub mod program;
mod projections;
pub mod registry_client;
mod results;
mod rpc;
mod runners;
mod service;
mod store_options;
mod tool_decisions;
mod transcripts;
mod use_cases;

use supervisor_core as domain;

pub use self::{
    backups::{BackupOptions, BackupSettings},
    cluster::PeerConnector,
    cluster_options::ClusterOptions,
    config::Config,
    engine::UpkeepLimits,
    limits::limits,
    options::SessionOptions,
    prices::PriceList,
    projections::{watch::WatchLimits, webhooks::WebhookLimits},
    registry_client::{LookUp, RegistryClient},
    rpc::{AUTHORITY, MAX_WAIT},
    service::{RunError, SERVICES, Supervisor, Surroundings},
    store_options::StoreOptions,
};

/// Parses arguments as a program that has only the flags of `A`.
#[cfg(test)]
fn parse_flags<A: clap::Args>(arguments: &[&str]) -> Result<A, clap::Error> {
    let command = A::augment_args(clap::Command::new("program"));
    let matches = command.try_get_matches_from([&["program"], arguments].concat())?;
    A::from_arg_matches(&matches)
}
