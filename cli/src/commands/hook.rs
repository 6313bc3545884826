//! `troupe hook`: the hook that an agent program runs before each tool call, so that the runner decides on the call.

use std::{path::PathBuf, process::ExitCode};

const AFTER_HELP: &str = "\
A runner names this command in the settings of a program. The command reads the call from standard input and writes the
decision. If it fails, the call is denied.";

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
