//! The harness of the whole-system tests: a pair of real services over real gRPC, in this process ([`pair`]) or in a
//! separate one ([`process`]), the supervisor alone as a process that can be killed ([`service`]), and a runner that a
//! test controls ([`runner`]).
//!
//! Tests wait for a response, an event or a message with [`within`]. They never sleep.
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
mod members;
pub mod page;
pub mod pair;
#[path = "../../supervisor-svc/log/tests/postgres_server/mod.rs"]
pub mod postgres_server;
pub mod process;
pub mod provider;
pub mod receiver;
pub mod refusal;
pub mod relay;
pub mod rng;
pub mod runner;
pub mod service;
pub mod terminal;
pub mod tls_front;
pub mod tree;
pub mod watch;

use std::{future::Future, time::Duration};

use tokio::{task::yield_now, time::timeout};
use tonic::{Response, Status};

/// Maximum wait for any response or event on a busy machine. Only a failing test waits that long.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// An id that no session and no thread has.
pub const UNKNOWN: &str = "01a1fc89-0902-7629-98ed-9dce17881f00";

/// Waits for a call and returns its response.
///
/// # Panics
///
/// If the call is rejected, or takes longer than [`MAX_WAIT`]; `what` names the expected response.
pub async fn accepted<T>(what: &str, call: impl Future<Output = Result<Response<T>, Status>>) -> T {
    // On the heap, because calls are large and would make the futures of the tests large.
    Box::pin(within(what, call)).await.unwrap().into_inner()
}

/// Waits for a future and returns its output.
///
/// # Panics
///
/// If the future takes longer than [`MAX_WAIT`]; `what` names the expected result.
pub async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match timeout(MAX_WAIT, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what} did not come within {MAX_WAIT:?}"),
    }
}

/// Waits until a condition holds. Checks it in a loop.
///
/// # Panics
///
/// If the condition does not hold within [`MAX_WAIT`]; `what` names the condition.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let held = async {
        while !holds() {
            yield_now().await;
        }
    };
    within(what, held).await;
}
