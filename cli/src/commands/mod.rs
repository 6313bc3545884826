//! The commands, one module each, with their arguments, help texts and implementation.

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod budget;
pub(crate) mod close;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod edges;
pub(crate) mod handoff;
pub(crate) mod hook;
pub(crate) mod lint;
pub(crate) mod mail;
pub(crate) mod mcp;
pub(crate) mod notify;
pub(crate) mod ps;
pub(crate) mod resolve;
pub(crate) mod run;
pub(crate) mod sample_agent;
pub(crate) mod send;
pub(crate) mod session;
pub(crate) mod spawn;
pub(crate) mod store;
pub(crate) mod up;
pub(crate) mod wait;
pub(crate) mod watch;

use std::process::ExitCode;

use svc_kit::settings::Settings;

use crate::{args::Command, context::Context, error::Result};

/// The outcome of a command that was tried without a runtime.
pub(crate) enum Outcome {
    /// The command needed no runtime and is done.
    Done(ExitCode),
    /// The command needs a runtime and was not run.
    Async(Box<Command>),
}

/// Returns whether the command runs a runner in its process, and thus has agent programs as children.
pub(crate) const fn runs_programs(command: &Command) -> bool {
    matches!(command, Command::Run(_) | Command::Up(_) | Command::Demo(_))
}

/// Runs the command if it needs no runtime. The sample agent is started as a separate process thousands of times, so
/// its start has to be cheap.
pub(crate) fn without_runtime(command: Command) -> Outcome {
    match command {
        Command::SampleAgent(args) => Outcome::Done(sample_agent::run(&args)),
        Command::Hook(args) => Outcome::Done(hook::run(&args)),
        other => Outcome::Async(Box::new(other)),
    }
}

/// Runs the command.
pub(crate) async fn run(command: Command, context: &Context, settings: Settings) -> Result<()> {
    // Boxed: each future is as large as all values that its command holds across an await.
    match command {
        Command::Up(args) => Box::pin(up::run(*args, context, settings)).await,
        Command::Demo(args) => Box::pin(demo::run(args, context)).await,
        Command::Agents(args) => Box::pin(agents::run(*args, context)).await,
        Command::Resolve(args) => Box::pin(resolve::run(*args, context)).await,
        Command::Lint(args) => lint::run(&args, context),
        Command::Spawn(args) => Box::pin(spawn::run(*args, context)).await,
        Command::Ps(args) => Box::pin(ps::run(args, context)).await,
        Command::Send(args) => Box::pin(send::run(args, context)).await,
        Command::Wait(args) => Box::pin(wait::run(args, context)).await,
        Command::Close(args) => Box::pin(close::run(args, context)).await,
        Command::Watch(args) => Box::pin(watch::run(args, context)).await,
        Command::Notify(args) => Box::pin(notify::run(args, context)).await,
        Command::Approvals(args) => Box::pin(approvals::run(args, context)).await,
        Command::Session(args) => Box::pin(session::run(args, context)).await,
        Command::Budget(args) => Box::pin(budget::run(args, context)).await,
        Command::Edges(args) => Box::pin(edges::run(args, context)).await,
        Command::Handoff(args) => Box::pin(handoff::run(args, context)).await,
        Command::Mail(args) => Box::pin(mail::run(args, context)).await,
        Command::Run(args) => Box::pin(run::run(args, context)).await,
        Command::Mcp(args) => Box::pin(mcp::run(*args, context)).await,
        Command::Doctor(args) => Box::pin(doctor::run(args, context)).await,
        Command::Store(args) => store::run(args, context),
        Command::SampleAgent(_) | Command::Hook(_) => Ok(()),
    }
}
