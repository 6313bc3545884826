//! `troupe sample-agent`: the agent program that a runner starts by default.

use std::{
    io::{self, BufReader},
    process::ExitCode,
};

const AFTER_HELP: &str = "\
It is started by a runner and speaks the runner's line protocol on standard input and output:
  troupe run --program troupe sample-agent";

/// The arguments of `sample-agent`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {}

/// Runs the sample agent.
pub(crate) fn run(_args: &Args) -> ExitCode {
    let code = troupe_runner::sample_agent::main_loop(BufReader::new(io::stdin()), io::stdout());
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}
