//! `troupe hook`: what an agent program runs before each of its tool calls, to have the runner decide on it.

use std::{path::PathBuf, process::ExitCode};

const AFTER_HELP: &str = "\
It is named by the settings that a runner gives to a program, reads the call from standard input, and writes the
decision. Every failure is a refusal.";

/// The arguments of `hook`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The runner's socket
    socket: PathBuf,
}

/// Asks the runner.
pub(crate) fn run(args: &Args) -> ExitCode {
    troupe_runner::hook::ask(&args.socket)
}
