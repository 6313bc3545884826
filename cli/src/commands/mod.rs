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

use clap::Subcommand;
use svc_kit::settings::Settings;

use crate::{context::Context, error::Result};

/// The commands. Each has a module.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the pair: both services, embedded storage and a runner
    Up(Box<up::Args>),
    /// Show everything in one go: a pair of its own, a tree of agents, refusals, a cascade
    Demo(demo::Args),
    /// List the roles that can be spawned here, show one, or write a new one
    Agents(Box<agents::Args>),
    /// Show what a spawn would get, and what decided each value
    Resolve(Box<resolve::Args>),
    /// Check template files; needs no running pair
    Lint(lint::Args),
    /// Spawn an agent
    Spawn(Box<spawn::Args>),
    /// List sessions and their threads
    Ps(ps::Args),
    /// Give a thread more to do
    Send(send::Args),
    /// Wait until threads are settled
    Wait(wait::Args),
    /// Close a thread and everything below it, leaf first
    Close(close::Args),
    /// Follow a session or a subtree, event by event
    Watch(watch::Args),
    /// Follow what a person should look at
    Notify(notify::Args),
    /// List what waits for an operator; grant or deny it
    Approvals(approvals::Args),
    /// Pause a session, set its mode or budget, close or delete it
    Session(session::Args),
    /// Set what an agent and those below it may spend
    Budget(budget::Args),
    /// List who may hand over to whom; create or delete an edge
    Edges(edges::Args),
    /// Send a message from one agent to another
    Handoff(handoff::Args),
    /// List what waits in an agent's mailbox
    Mail(mail::Args),
    /// Run threads for a supervisor
    Run(run::Args),
    /// Give your own agent program the tools to lead agents: an MCP server on standard input and output
    Mcp(Box<mcp::Args>),
    /// Look for what is wrong, and say what to do about it
    Doctor(doctor::Args),
    /// Verify, read, pack or back up what is kept on disk; needs no running pair
    Store(store::Args),
    /// The agent program of the demo: reads its prompt, obeys the directives in it
    #[command(hide = true)]
    SampleAgent(sample_agent::Args),
    /// What an agent program runs before its tool calls: asks its runner
    #[command(hide = true)]
    Hook(hook::Args),
}

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

/// Parses a command line without the shared flags.
#[cfg(test)]
pub(crate) fn parse<'a>(line: impl IntoIterator<Item = &'a &'a str>) -> std::result::Result<Command, clap::Error> {
    /// A program with the commands only.
    #[derive(Debug, clap::Parser)]
    struct Line {
        /// The command.
        #[command(subcommand)]
        command: Command,
    }
    <Line as clap::Parser>::try_parse_from(line).map(|line| line.command)
}
