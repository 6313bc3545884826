//! `troupe hook`: the hook that an agent program runs before each tool call, so that the runner decides on the call.

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

/// Asks the runner for its decision.
pub(crate) fn run(args: &Args) -> ExitCode {
    troupe_runner::hook::ask(&args.socket)
}
