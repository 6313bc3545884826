//! Tests of the `troupe` binary: its processes, its output on terminals and in pipes, and its exit codes.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod batch;
mod commands;
mod console;
mod control;
#[cfg(target_os = "linux")]
mod first_process;
mod signals;
mod store;
mod support;
mod terminal;
mod top;
mod usage;
