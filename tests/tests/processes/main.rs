//! The programs as processes: their command line, files, ports, logs and telemetry.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod audit;
mod backups;
mod desktop_notifications;
mod export;
mod launcher;
mod mcp;
mod metrics;
mod pair_process;
mod program_checks;
mod rust_client;
mod secrets;
mod single_use;
mod token_files;
mod traces;
