//! The `troupe` command line.
//!
//! `main` parses the arguments (`args`), passes a `context` to the command, and converts its result to an exit code
//! (`error`). Each command is a module of `commands`. All output goes through `ui`.
#![forbid(unsafe_code)]

mod args;
mod attention;
mod background;
mod choices;
mod commands;
mod complete;
mod content;
mod context;
mod desktop;
mod dry_turn;
mod error;
mod event_format;
mod filter;
mod follow;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod generated_pages;
mod global;
mod hints;
mod ids;
mod init_process;
mod json;
mod listing;
mod message;
mod names;
mod options;
mod output;
mod pair;
mod places;
mod programs;
mod rpcs;
mod sanitize;
mod session_settings;
mod session_view;
mod stop;
mod suggest;
mod time;
mod transcript_format;
mod ui;
mod waiting;
mod webhook;
mod workspace;

use std::{env, ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _, parser::ValueSource};
use clap_complete::CompleteEnv;
use svc_kit::settings::{Settings, SettingsError};

use crate::{
    args::Cli,
    commands::{Command, completion, hook, launcher, sample_agent},
    context::Context,
    error::{Error, Kind, Result},
    global::SHARED_SETTINGS,
    output::{Format, OutputArgs},
    ui::Ui,
};

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    // Ends the process if a shell asks for completions.
    CompleteEnv::with_factory(Cli::command)
        .var(completion::VARIABLE)
        .complete();
    let (mut cli, settings) = match parse() {
        Ok(parsed) => parsed,
        Err(SettingsError::Usage(error)) => return refuse(&error),
        Err(error) => {
            let format = if wants_json() { Format::Json } else { Format::Table };
            let refused = Error::usage(error.to_string());
            let refused = error.remedy().into_iter().fold(refused, Error::hint);
            Ui::new(&OutputArgs::of(format)).error(&refused);
            return refused.exit_code();
        }
    };
    let ui = Ui::new(&cli.global.output);
    let is_given = |name: &str| {
        let source = settings.matches.value_source(name);
        matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    };
    if commands::connects(&cli.command)
        && let Err(error) = cli.global.resolve(is_given)
    {
        ui.error(&error);
        return error.exit_code();
    }
    match execute(cli, settings) {
        Ok(code) => code,
        Err(error) => {
            ui.error(&error);
            error.exit_code()
        }
    }
}

fn parse() -> std::result::Result<(Cli, Settings), SettingsError> {
    let settings = Settings::gather(&Cli::command(), SHARED_SETTINGS, env::args_os())?;
    let cli = Cli::from_arg_matches(&settings.matches)?;
    Ok((cli, settings))
}

/// Prints the help, the version, or the error about the arguments.
fn refuse(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && wants_json() {
        let text = error.to_string();
        let (message, hint) = text.split_once("\n\n").unwrap_or((&text, ""));
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let error = Error::usage(sanitize::line(message)).hint(sanitize::line(hint));
        Ui::new(&OutputArgs::of(Format::Json)).error(&error);
        return error.exit_code();
    }
    // There is no other output on which to report a failure.
    let _ = error.print();
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Returns whether the arguments request JSON, on a best-effort basis if they cannot be parsed.
fn wants_json() -> bool {
    // `args_os`: arguments that are not UTF-8 have to be rejected, and `args` would panic.
    let arguments: Vec<_> = env::args_os().collect();
    let is_joined = |argument: &OsString| argument == "--output=json" || argument == "-ojson" || argument == "-o=json";
    let is_pair = |pair: &[OsString]| pair == ["--output", "json"] || pair == ["-o", "json"];
    arguments.iter().any(is_joined) || arguments.windows(2).any(is_pair)
}

fn execute(cli: Cli, settings: Settings) -> Result<ExitCode> {
    if cli.global.output.format == Format::Sarif && !matches!(cli.command, Command::Lint(_)) {
        return Err(Error::usage("only `troupe lint` writes SARIF").hint("use --output json"));
    }
    if !matches!(cli.command, Command::Export(_))
        && let Some(error) = commands::export::check_other_command(&cli.global.output.format)
    {
        return Err(error);
    }
    if init_process::is_here() && commands::runs_programs(&cli.command) {
        return init_process::run()
            .map_err(|error| Error::failure(format!("cannot run as the first process: {error}")));
    }
    let context = Context::new(cli.global);
    let command = match cli.command {
        Command::Man(args) => return completion::man(&args, Cli::command()).map(|()| ExitCode::SUCCESS),
        // The sample agent is started as a separate process thousands of times, so its start has to be cheap.
        Command::SampleAgent(args) => return Ok(sample_agent::run(&args)),
        Command::Hook(args) => return Ok(hook::run(&args)),
        Command::Launch(args) => return Ok(launcher::launch(args)),
        command => command,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::failure(format!("cannot start: {error}")))?;
    let done = runtime.block_on(commands::run(command, &context, settings));
    // Does not wait for background tasks, because their results are no longer needed.
    runtime.shutdown_background();
    match done {
        Err(error) if error.kind() == Kind::ClosedPipe => Ok(error.exit_code()),
        done => done.map(|()| ExitCode::SUCCESS),
    }
}
