//! Faults: killed processes, power cuts, failing disks, changed clocks, drains and overload. `tests/faults/table.tsv`
//! lists the promises.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[cfg(target_os = "linux")]
mod clock_jumps;
mod cluster;
mod cluster_faults;
mod crash_loop;
#[cfg(target_os = "linux")]
mod disk_faults;
mod drain;
mod group_kills;
#[cfg(target_os = "linux")]
mod journal;
#[cfg(target_os = "linux")]
mod machine;
mod postgres;
#[cfg(target_os = "linux")]
mod power_loss;
mod takeover;
mod ten_thousand_watchers;

use std::{
    collections::BTreeSet,
    env,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    str::FromStr,
};

use tonic::Status;
use troupe_proto::supervisor::v1::{OnLimit, SpawnAgentRequest};
use troupe_tests::tree::{Spawned, Tree};

/// Spawns a thread and returns its id.
async fn spawn(tree: &Tree, request_id: String) -> Result<String, Status> {
    let request = SpawnAgentRequest {
        request_id,
        on_limit: OnLimit::Queue.into(),
        ..tree.request("worker")
    };
    tree.try_spawn(request).await.map(|answer| Spawned::of(answer).id)
}

/// Returns the number in an environment variable, or the default.
fn number_from<T: FromStr>(variable: &str, default: T) -> T {
    let Ok(text) = env::var(variable) else {
        return default;
    };
    let number = text.parse().ok();
    number.unwrap_or_else(|| panic!("{variable} is {text:?}; it must be a number"))
}

/// Returns the seed in an environment variable, or a random seed, and prints how to repeat the run.
fn seed(variable: &str) -> u64 {
    let seed = number_from(variable, RandomState::new().build_hasher().finish());
    println!("repeat this with {variable}={seed}");
    seed
}

async fn threads(tree: &Tree) -> BTreeSet<String> {
    let threads = tree.threads().await.into_iter();
    threads.map(|thread| thread.thread_id).collect()
}
