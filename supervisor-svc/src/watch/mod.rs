//! Following sessions: a snapshot as of S, then every event after S in order; and beside it the latest telemetry.

pub mod encoded;
mod route;
mod stream;
mod telemetry;

pub(crate) use self::stream::draining;
pub use self::{
    route::{BeginWatch, Messages, WatchRoute},
    stream::{Position, Scope, ThreadWatch, WatchLimits},
    telemetry::TelemetryBoard,
};
