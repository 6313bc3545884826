//! The supervisor in a simulated network: messages are late or lost, links break, machines die and come back, all
//! determined by a seed. After the faults have ended, all promises must hold.
//!
//! `TROUPE_SIM_SEEDS=5000 cargo test -p troupe-tests --test simulation` runs more seeds than a normal run;
//! `TROUPE_SIM_SEED=17` runs one seed alone.
//!
//! Simulated: the network (turmoil's TCP), the time of day, all timers, the ids, and the death of a machine. A machine
//! that dies loses its memory without notice; the log survives. The supervisor is real, with its gRPC stack, from the
//! accepted connection down to the store. The registry, the runners with their agents, and the clients are fakes.
//!
//! Not simulated: the disk (`tests/tests/faults/crash_loop.rs` kills a process with a real disk), TLS, the accepting of
//! connections, the drain, and TCP's retransmission: a connection that lost a segment stalls until one end closes it.
//! Random values that are not in the log stay random: the keys of tokens and the id of the log.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod caller;
mod client;
mod clock;
mod cluster;
mod conductor;
mod faults;
mod log;
mod net;
mod registry;
mod runner;
mod shared;
mod supervisor;
mod watcher;
mod world;

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Default number of seeds in a run.
const SEEDS: u64 = 100;
/// One of this number of seeds is simulated two more times to compare the logs.
const COMPARED: usize = 10;
/// Number of concurrent simulations. Each one runs on one thread.
const AT_ONCE: usize = 2;

#[test]
fn promises_hold_for_every_seed() {
    for_each(&seeds(SEEDS), |seed| {
        world::simulate(seed);
    });
}

#[test]
fn same_seed_gives_same_history() {
    let seeds: Vec<u64> = seeds(SEEDS).into_iter().step_by(COMPARED).collect();
    for_each(&seeds, |seed| {
        let (once, again) = (world::simulate(seed), world::simulate(seed));
        once.assert_same(&again);
    });
}

/// Returns the seeds of this run: the number in the environment, otherwise `default` seeds.
fn seeds(default: u64) -> Vec<u64> {
    let number = |name: &str| {
        let text = env::var(name).ok()?;
        Some(
            text.parse::<u64>()
                .unwrap_or_else(|_| panic!("{name} must be a number, not \"{text}\"")),
        )
    };
    match number("TROUPE_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("TROUPE_SIM_SEEDS").unwrap_or(default)).collect(),
    }
}

/// Runs every seed, regardless of failures, and then fails with the list of all failed seeds.
fn for_each(seeds: &[u64], run: impl Fn(u64) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(*seed))) {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let why = text.or_else(|| panic.downcast_ref::<&str>().copied());
                let why = why.unwrap_or("panic without a message");
                failed.push(format!("TROUPE_SIM_SEED={seed}: {why}"));
            }
        }
        failed
    };
    let failed: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(
        failed.is_empty(),
        "{} of {} seeds failed; `TROUPE_SIM_SEED=N cargo test -p troupe-tests --test simulation` repeats one:\n{}",
        failed.len(),
        seeds.len(),
        failed.join("\n")
    );
}
