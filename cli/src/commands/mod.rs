//! The commands, one module each, with their arguments, help texts and implementation.

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod artifacts;
pub(crate) mod batch;
pub(crate) mod budget;
pub(crate) mod bundle;
pub(crate) mod close;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod console;
pub(crate) mod context;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod edges;
pub(crate) mod export;
pub(crate) mod handoff;
pub(crate) mod hook;
pub(crate) mod launcher;
pub(crate) mod lint;
pub(crate) mod logs;
pub(crate) mod mail;
pub(crate) mod mcp;
pub(crate) mod notify;
pub(crate) mod pods;
pub(crate) mod prompts;
pub(crate) mod ps;
pub(crate) mod quota;
pub(crate) mod resolve;
pub(crate) mod route;
pub(crate) mod run;
pub(crate) mod runners;
pub(crate) mod sample_agent;
pub(crate) mod send;
pub(crate) mod session;
pub(crate) mod show;
pub(crate) mod spawn;
pub(crate) mod store;
pub(crate) mod thread;
pub(crate) mod tools;
pub(crate) mod top;
pub(crate) mod up;
pub(crate) mod wait;
pub(crate) mod watch;

use clap::Subcommand;
use svc_kit::settings::Settings;

use crate::{context::Context, error::Result};

/// The commands. Each has a module. `args::HELP` groups them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start both services, embedded storage and a runner
    Up(Box<up::Args>),
    /// Stop the services of the data directory
    Down(down::Args),
    /// Show the services of the data directory
    Status(down::StatusArgs),
    /// Demonstrate the system: start services, run a tree of agents, show rejections and a cascade
    Demo(demo::Args),
    /// Spawn an agent
    Spawn(Box<spawn::Args>),
    /// Show all sessions and threads on one screen, and act on them
    Top(top::Args),
    /// Serve the web console
    Console(console::Args),
    /// List sessions and their threads
    Ps(ps::Args),
    /// Show a session or a thread
    Show(show::Args),
    /// Send input to a thread
    Send(send::Args),
    /// Wait until threads are settled
    Wait(wait::Args),
    /// Follow the events of a session or a subtree
    Watch(watch::Args),
    /// Interrupt the running turn of a thread and its descendants
    Interrupt(thread::InterruptArgs),
    /// Close a thread and its descendants, leaf first
    Close(close::Args),
    /// Reopen a closed thread
    Resume(thread::ResumeArgs),
    /// Set or clear the note of a thread
    Note(thread::NoteArgs),
    /// Set the budget of a thread and its descendants
    Budget(budget::Args),
    /// Follow notifications
    Notify(notify::Args),
    /// Run one agent for each row of a table
    #[command(subcommand)]
    Batch(batch::Action),
    /// List approvals; grant or deny them
    Approvals(approvals::Args),
    /// Create, list, change, close and delete sessions
    #[command(subcommand)]
    Session(session::Action),
    /// Manage threads; includes the commands above
    #[command(subcommand)]
    Thread(thread::Action),
    /// List roles, show one, or create a template
    Agents(Box<agents::Args>),
    /// Show the result of a spawn and the origin of each value
    Resolve(Box<resolve::Args>),
    /// Show which role the registry selects for a task
    Route(route::Args),
    /// Check template files; needs no service
    Lint(lint::Args),
    /// Upload the templates of a directory, or list an uploaded bundle
    #[command(subcommand)]
    Bundle(bundle::Action),
    /// Manage edges between threads
    Edges(edges::Args),
    /// Send a message from one thread to another
    Handoff(handoff::Args),
    /// List the mail of a thread
    Mail(mail::Args),
    /// Show the transcript of a thread: its inputs, messages and tool calls
    Logs(logs::Args),
    /// Write a whole session as Markdown, HTML or JSON lines
    Export(export::Args),
    /// List the prompts of a thread and show them
    Prompts(prompts::Args),
    /// List artifacts and fetch their content
    Artifacts(artifacts::Args),
    /// List the tools of a thread, and check one
    Tools(tools::Args),
    /// Show limits, slots and budgets in use
    Quota(quota::Args),
    /// Run threads for a supervisor
    Run(run::Args),
    /// List the runners that hold threads
    Runners(runners::Args),
    /// Show and drain the supervisors that share a database, and move sessions between them
    #[command(subcommand)]
    Cluster(cluster::Action),
    /// Serve the tools for supervising agents over MCP, on standard input and output
    Mcp(Box<mcp::Args>),
    /// Diagnose the installation
    Doctor(doctor::Args),
    /// Manage named servers
    #[command(subcommand)]
    Context(context::Action),
    /// Print the completion script of a shell
    Completion(completion::Args),
    /// Write the manual pages
    Man(completion::ManArgs),
    /// Verify, read, compact, back up or restore stored data; needs no service
    #[command(subcommand)]
    Store(store::Action),
    /// Run the sample agent, which obeys directives in its prompt
    #[command(hide = true)]
    SampleAgent(sample_agent::Args),
    /// Ask the runner whether a tool call is allowed
    #[command(hide = true)]
    Hook(hook::Args),
    /// Start the programs of a runner in this container
    #[command(hide = true)]
    Launcher(launcher::Args),
    /// Start a program through a launcher
    #[command(hide = true)]
    Launch(launcher::LaunchArgs),
    /// Keep pods for single threads or sessions in a Kubernetes cluster
    #[command(hide = true)]
    Pods(pods::Args),
}

/// Returns whether the command runs a runner in its process, and thus has agent programs as children.
pub(crate) const fn runs_programs(command: &Command) -> bool {
    matches!(
        command,
        Command::Run(_) | Command::Up(_) | Command::Demo(_) | Command::Launcher(_)
    )
}

/// Returns whether the command connects to the services that the flags or the context select. The others use no service
/// or the services of the data directory.
pub(crate) const fn connects(command: &Command) -> bool {
    !matches!(
        command,
        Command::Up(_)
            | Command::Down(_)
            | Command::Status(_)
            | Command::Demo(_)
            | Command::Lint(_)
            | Command::Context(_)
            | Command::Completion(_)
            | Command::Man(_)
            | Command::Store(_)
            | Command::SampleAgent(_)
            | Command::Hook(_)
            | Command::Launcher(_)
            | Command::Launch(_)
            | Command::Pods(_)
    )
}

/// Runs a command that needs a runtime.
pub(crate) async fn run(command: Command, context: &Context, settings: Settings) -> Result<()> {
    // Boxed, because each future is as large as all values that its command holds across an await.
    match command {
        Command::Up(args) => Box::pin(up::run(*args, context, settings)).await,
        Command::Demo(args) => Box::pin(demo::run(args, context)).await,
        Command::Spawn(args) => Box::pin(spawn::run(*args, context)).await,
        Command::Top(args) => Box::pin(top::run(args, context)).await,
        Command::Console(args) => Box::pin(console::run(args, context)).await,
        Command::Ps(args) => Box::pin(ps::run(args, context)).await,
        Command::Show(args) => Box::pin(show::run(args, context)).await,
        Command::Send(args) => Box::pin(send::run(args, context)).await,
        Command::Wait(args) => Box::pin(wait::run(args, context)).await,
        Command::Watch(args) => Box::pin(watch::run(args, context)).await,
        Command::Interrupt(args) => Box::pin(thread::interrupt(args, context)).await,
        Command::Close(args) => Box::pin(close::run(args, context)).await,
        Command::Resume(args) => Box::pin(thread::resume(args, context)).await,
        Command::Note(args) => Box::pin(thread::note(args, context)).await,
        Command::Budget(args) => Box::pin(budget::run(args, context)).await,
        Command::Notify(args) => Box::pin(notify::run(args, context)).await,
        Command::Batch(action) => Box::pin(batch::run(action, context)).await,
        Command::Approvals(args) => Box::pin(approvals::run(args, context)).await,
        Command::Session(action) => Box::pin(session::run(action, context)).await,
        Command::Thread(action) => Box::pin(thread::run(action, context)).await,
        Command::Agents(args) => Box::pin(agents::run(*args, context)).await,
        Command::Resolve(args) => Box::pin(resolve::run(*args, context)).await,
        Command::Route(args) => Box::pin(route::run(args, context)).await,
        Command::Lint(args) => lint::run(&args, context),
        Command::Bundle(action) => Box::pin(bundle::run(action, context)).await,
        Command::Edges(args) => Box::pin(edges::run(args, context)).await,
        Command::Handoff(args) => Box::pin(handoff::run(args, context)).await,
        Command::Mail(args) => Box::pin(mail::run(args, context)).await,
        Command::Export(args) => Box::pin(export::run(args, context)).await,
        Command::Logs(args) => Box::pin(logs::run(args, context)).await,
        Command::Prompts(args) => Box::pin(prompts::run(args, context)).await,
        Command::Artifacts(args) => Box::pin(artifacts::run(args, context)).await,
        Command::Tools(args) => Box::pin(tools::run(args, context)).await,
        Command::Quota(args) => Box::pin(quota::run(args, context)).await,
        Command::Run(args) => Box::pin(run::run(args, context)).await,
        Command::Runners(args) => Box::pin(runners::run(args, context)).await,
        Command::Cluster(action) => Box::pin(cluster::run(action, context)).await,
        Command::Mcp(args) => Box::pin(mcp::run(*args, context)).await,
        Command::Down(args) => Box::pin(down::run(args, context)).await,
        Command::Status(args) => Box::pin(down::status(args, context)).await,
        Command::Context(action) => context::run(action, context),
        Command::Completion(args) => completion::run(&args),
        Command::Doctor(args) => Box::pin(doctor::run(args, context)).await,
        Command::Store(action) => Box::pin(store::run(action, context)).await,
        Command::Launcher(args) => Box::pin(launcher::run(args)).await,
        Command::Pods(args) => Box::pin(pods::run(args)).await,
        Command::SampleAgent(_) | Command::Hook(_) | Command::Launch(_) | Command::Man(_) => Ok(()),
    }
}
