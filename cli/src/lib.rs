//! The `troupe` command line.
//!
//! `main` parses the arguments (`args`), gives the command its `context`, and turns what came of it into an exit
//! code (`error`). Each command is a file under `commands`; everything that is written goes through `ui`.
#![forbid(unsafe_code)]

mod args;
mod client;
mod commands;
mod content;
mod context;
mod error;
mod follow;
mod hints;
mod ids;
mod json;
mod listing;
mod message;
mod names;
mod options;
mod pair;
mod patience;
mod places;
mod programs;
mod sanitize;
mod story;
mod threads;
mod time;
mod token;
mod ui;
mod waiting;
mod workspace;

use std::{env, process::ExitCode};

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};

use crate::{
    args::{Cli, Command, Output},
    context::Context,
    error::{Error, Kind, Result},
    ui::Ui,
};

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let (cli, matches) = match parse() {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error),
    };
    let ui = Ui::new(cli.global.output);
    match execute(cli, &matches) {
        Ok(code) => code,
        Err(error) => {
            ui.error(&error);
            error.exit_code()
        }
    }
}

fn parse() -> std::result::Result<(Cli, ArgMatches), clap::Error> {
    let matches = Cli::command().try_get_matches()?;
    let cli = Cli::from_arg_matches(&matches)?;
    Ok((cli, matches))
}

/// Shows help, the version, or what is wrong with the arguments.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && wants_json() {
        let text = error.to_string();
        let (message, hint) = text.split_once("\n\n").unwrap_or((&text, ""));
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let error = Error::usage(sanitize::line(message)).hint(sanitize::line(hint));
        Ui::new(Output::Json).error(&error);
        return error.exit_code();
    }
    // Nowhere left to report a failure to.
    let _ = error.print();
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Whether the arguments ask for JSON, as far as can be told of arguments that do not parse.
fn wants_json() -> bool {
    let arguments: Vec<_> = env::args().collect();
    let joined = arguments.iter().any(|argument| argument == "--output=json");
    joined || arguments.windows(2).any(|pair| pair == ["--output", "json"])
}

fn execute(cli: Cli, matches: &ArgMatches) -> Result<ExitCode> {
    if cli.global.output == Output::Sarif && !matches!(cli.command, Command::Lint(_)) {
        return Err(Error::usage("only `troupe lint` writes SARIF").hint("use --output json"));
    }
    let context = Context::new(cli.global);
    let command = match commands::without_runtime(cli.command) {
        commands::Outcome::Done(code) => return Ok(code),
        commands::Outcome::Async(command) => command,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::failure(format!("cannot start: {error}")))?;
    let done = runtime.block_on(commands::run(*command, &context, matches));
    // Whatever still runs in the background has nothing to say any more.
    runtime.shutdown_background();
    match done {
        Err(error) if error.kind() == Kind::ClosedPipe => Ok(error.exit_code()),
        done => done.map(|()| ExitCode::SUCCESS),
    }
}
