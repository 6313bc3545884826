//! Execution of threads by runners.
//!
//! - [`link`]: the Attach RPC, one task per runner.
//! - [`hub`]: the connections and program slots of the runners. All of it is volatile.
//! - [`placement`]: which runners suit a thread.
//! - [`dispatch`]: a subscriber of the commit feed that performs the pending effects of a session's threads.
//! - [`protocol`]: conversion of runners' reports.
//!
//! Which runner holds a thread is a fact of the folded session
//! ([`Thread::holder`](crate::domain::state::thread::Thread::holder)). The hub only knows which programs a connected
//! runner has at present; dispatch compares the two.

pub(crate) mod artifacts;
mod board;
mod dispatch;
pub(crate) mod hub;
pub(crate) mod link;
mod orchestrate;
pub(crate) mod output;
mod placement;
pub(crate) mod protocol;
mod runner;
mod services;
mod silence;
mod steer;
pub(crate) mod telemetry;
mod turn;

pub use self::{
    dispatch::Dispatcher,
    hub::{LEASE, RunnerHub},
    link::RunnerGate,
    output::OutputBoard,
    placement::Need,
    services::Services,
    telemetry::TelemetryBoard,
};
pub(crate) use self::{
    hub::OUTBOX,
    link::{FromRunners, first_hello, permit},
};
