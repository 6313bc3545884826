//! The attached runners, the attempts that each one holds, and the streams to them. All of it is volatile: the pending
//! effects for a runner are a function of the sessions' states.

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
