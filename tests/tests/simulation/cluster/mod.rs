//! Three supervisors over one log, of which any may die, stop for a while, drain, or lose its connections to the others
//! and to the log.
//!
//! A pause of a host holds its messages and its calls of the store until it continues, because turmoil cannot stop a host.
//! The host's timers run in the meantime. A call of the store either fails without an effect, or has its effect when it
//! ends.

mod check;
mod faults;
mod reader;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{COMPARED, for_each, seeds};

/// Default number of seeds in a run.
const SEEDS: u64 = 60;

/// The number of seeds within which a simulation without the fence must show a violation.
const WITHIN_SEEDS: u64 = 200;

#[test]
fn three_supervisors_keep_promises_for_every_seed() {
    for_each(&seeds(SEEDS), |seed| world::simulate(seed, true).check());
}

#[test]
fn three_supervisors_have_the_same_history_for_the_same_seed() {
    let seeds: Vec<u64> = seeds(SEEDS).into_iter().step_by(COMPARED).collect();
    for_each(&seeds, |seed| {
        let (once, again) = (world::simulate(seed, true), world::simulate(seed, true));
        once.log().assert_same(&again.log());
    });
}

/// Shows that the checks find what the fence of the log prevents.
#[test]
fn missing_fence_is_found() {
    let is_found = |seed: &u64| {
        // Without the fence, a simulation may not end. That shows nothing.
        let history = catch_unwind(|| world::simulate(*seed, false));
        history.is_ok_and(|history| catch_unwind(AssertUnwindSafe(|| history.check())).is_err())
    };
    let found = (0..WITHIN_SEEDS).find(is_found);
    let found = found.expect("the checks find nothing, although the log has no fence");
    println!("seed {found} shows that the log has no fence");
}
