//! The log without an engine in particular: codecs of records and snapshots, maintenance, and faults of disks.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod codec;
mod events;
#[cfg(target_os = "linux")]
mod faults;
mod maintenance;
mod samples;
mod snapshot;
