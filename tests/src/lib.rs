//! The harness of the whole-system tests: a pair of real services over real gRPC, in this process ([`pair`]) or in a
//! separate one ([`process`]), the supervisor alone as a process that can be killed ([`service`]), and a runner that a
//! test controls ([`runner`]).
//!
//! Tests wait for a response, an event or a message with [`within`]. They never sleep and never wait for a time.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

pub mod admin;
pub mod agents;
pub mod authority;
pub mod client;
pub mod collector;
pub mod content;
pub mod crowd;
pub mod events;
mod grow;
pub mod page;
pub mod pair;
pub mod process;
pub mod provider;
pub mod receiver;
pub mod refusal;
pub mod relay;
pub mod rng;
pub mod runner;
pub mod service;
pub mod tls_front;
pub mod tree;
pub mod watch;

use std::{future::Future, time::Duration};

use tokio::time::timeout;

/// How long anything may take on a busy machine. Only a failing test waits that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An id of no session and no thread.
pub const UNKNOWN: &str = "01a1fc89-0902-7629-98ed-9dce17881f00";

/// What the future answers.
///
/// # Panics
///
/// If it takes longer than [`PATIENCE`]; `what` says what is missing.
pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} did not come within {PATIENCE:?}"),
    }
}
