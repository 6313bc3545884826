//! Following sessions: a snapshot as of S, then every event after S in order; and beside it the latest telemetry.

pub mod encoded;
mod route;
mod stream;
mod tail;
mod telemetry;

pub use self::{
    route::{BeginWatch, Messages, WatchRoute},
    stream::{Position, Scope, ThreadWatch, WatchLimits},
    telemetry::TelemetryBoard,
};
pub(crate) use self::{
    stream::draining,
    tail::{Tail, read_log},
};
