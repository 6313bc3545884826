//! Executes threads for the supervisor. The runner attaches to the supervisor, starts an agent program for each
//! assigned thread, dispatches turns to the program, executes its tool calls (by asking the supervisor, or in the
//! thread's directory if the supervisor allows it) and reports the results.
//!
//! ```text
//! runner -> link (the stream) -> runner_state (threads, pending messages) -> thread (one task) -> agent (one per kind)
//!                                  |-> outbox (reports until they are durable)     |               |-> process
//!                                  |-> questions (until they are decided)          |               '-> codex, claude,
//!                                  |                                               |                   acp, a2a
//!                                  '-> kinds (program selection)                   '-> tools, workspace
//! ```
//!
//! One task owns the runner state, so the state needs no lock. Threads outlive streams: they continue while the
//! supervisor is disconnected, and the runner sends their reports after it has attached again.
#![forbid(unsafe_code)]

mod a2a;
mod acp;
mod agent;
mod allowed_paths;
mod backoff;
mod bearer;
mod child;
mod claude;
mod codex;
mod config;
mod confined_git;
mod confinement;
mod confinement_table;
mod driven;
mod env;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod git;
mod group;
mod home;
pub mod hook;
mod http_client;
mod input;
mod kinds;
pub mod launcher;
mod link;
pub mod mcp;
mod meter;
mod outbox;
mod own_tools;
mod placeholders;
pub mod pods;
mod policy;
mod process;
mod process_spec;
pub mod program_check;
mod programs;
mod project;
mod prompt;
mod provider_access;
mod provider_proxy;
mod questions;
mod recorder;
mod redact;
mod runner;
mod runner_state;
pub mod sample_agent;
mod subprocess;
mod text;
mod thread;
mod timer;
mod tool_hints;
pub mod tool_line;
mod tools;
mod usage;
mod workspace;
mod worktree;

pub use config::{Ended, RunnerConfig, Timing};
pub use confinement_table::confinement_table;
pub use error::RunnerError;
pub use programs::{
    A2aBinding, A2aProgram, AcpProgram, AgentProgram, ProcessProgram, Profile, Program, ProgramKind, Programs,
    ProgramsError,
};
use svc_kit::limits::Area;
use tokio_util::sync::CancellationToken;
pub use worktree::WorktreeCleanup;

/// Returns the limits of runners.
#[must_use]
pub fn limits() -> Vec<Area> {
    vec![provider_access::limits(), a2a::limits()]
}

/// Attaches to the supervisor and executes threads until `shutdown` is cancelled. Then it drains: it accepts no more
/// threads, lets running turns finish, interrupts the rest (see [`Timing::drain_limit`]), stops every program and
/// returns. If the supervisor disconnects, the runner attaches again. A permanent rejection is an error.
///
/// # Errors
///
/// The configuration is unusable, or the supervisor refused the runner before it was ever attached.
pub async fn run(config: RunnerConfig, shutdown: CancellationToken) -> Result<Ended, RunnerError> {
    runner::Runner::new(config)?.run(&shutdown).await
}
