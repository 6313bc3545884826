//! Where threads are executed: which runners are attached, what each holds, and the way to them. All of it is volatile;
//! what a runner owes is a function of the sessions' states.

mod attach;
pub(crate) mod limits;
mod need;
mod pieces;
mod reports;
mod roster;
mod runner;

pub use self::{
    attach::RunnerGate,
    need::Need,
    roster::{LEASE, RunnerHub, Standing, WhyStopped},
};
