//! Tests of the log that do not run on every engine: codecs of records and snapshots, maintenance, and disk faults.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod codec;
mod events;
#[cfg(target_os = "linux")]
mod faults;
mod maintenance;
mod samples;
mod snapshot;
