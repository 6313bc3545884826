//! The supervisor over gRPC. Services, clients and runners are in one process, see `troupe_tests::pair`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod approvals;
mod artifacts;
mod bad_input;
mod budgets;
mod close_policies;
mod closing;
mod event_floods;
mod graph;
mod groups;
mod hostile_child;
mod idempotency;
mod input_items;
mod large_snapshots;
mod leases;
mod mail;
mod notifications;
mod passivation;
mod permissions;
mod prompts;
mod registry_faults;
mod remote_agents;
mod results;
mod retention;
mod rollups;
mod routing;
mod runners;
mod sessions;
mod spawning;
mod telemetry_values;
mod tools;
mod transcripts;
mod waits;
mod watching;
mod workspaces;

use supervisor_svc::UpkeepLimits;
use troupe_tests::{
    pair::Pair,
    runner::{Attempt, Runner},
    tree::Tree,
};

/// Starts a pair with a session.
async fn started() -> (Pair, Tree) {
    let pair = Pair::start().await;
    let tree = pair.tree().await;
    (pair, tree)
}

/// Starts a pair with a session and a runner named "r".
async fn attached() -> (Pair, Tree, Runner) {
    let (pair, tree) = started().await;
    let runner = Runner::attach(&pair, "r").await;
    (pair, tree, runner)
}

/// Starts a pair with a session and a runner named "r" that runs a worker's first turn. The string is the worker's id.
async fn working() -> (Pair, Tree, Runner, String, Attempt) {
    let (pair, tree) = started().await;
    let (runner, attempt) = running(&pair, &tree).await;
    (pair, tree, runner, attempt.thread.clone(), attempt)
}

/// Attaches a runner named "r" that runs a worker's first turn.
async fn running(pair: &Pair, tree: &Tree) -> (Runner, Attempt) {
    let mut runner = Runner::attach(pair, "r").await;
    let attempt = tree.run_worker(&mut runner).await;
    (runner, attempt)
}

/// Returns limits that compact a log after few events.
fn soon_compacted() -> UpkeepLimits {
    UpkeepLimits {
        snapshot_every: 20,
        compact_above: 40,
        keep_before_snapshot: 10,
        ..UpkeepLimits::default()
    }
}
