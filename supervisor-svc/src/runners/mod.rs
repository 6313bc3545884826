//! Execution of threads by runners.
//!
//! - [`link`]: the Attach RPC, one task per runner.
//! - [`hub`]: the connections and program slots of the runners. All of it is volatile.
//! - [`placement`]: which runners suit a thread.
//! - [`dispatch`]: a subscriber of the commit feed that performs the pending effects of a session's threads.
//! - [`protocol`]: conversion of runners' reports.
//!
//! Which runner holds a thread is a fact of the folded session
//! ([`Thread::holder`](crate::domain::thread::Thread::holder)). The hub only knows which programs a connected runner has
//! at present; dispatch compares the two.

mod artifacts;
mod board;
mod dispatch;
mod hub;
mod link;
mod orchestrate;
mod output;
mod placement;
mod protocol;
mod runner;
mod silence;
mod steer;
mod telemetry;
mod turn;

pub use self::{
    dispatch::Dispatcher,
    hub::{LEASE, RunnerHub},
    link::RunnerGate,
    output::OutputBoard,
    placement::Need,
    telemetry::TelemetryBoard,
};
