//! The command line: shared flags and the list of commands.

use std::path::{self, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::Styles, builder::styling::AnsiColor};
use svc_kit::tls::ClientFiles;

use crate::{
    commands::{
        agents, approvals, budget, close, demo, doctor, edges, handoff, hook, lint, mail, mcp, notify, ps, resolve,
        run, sample_agent, send, session, spawn, store, up, wait, watch,
    },
    token::Given,
};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Text shown below the list of commands.
const AFTER_HELP: &str = "\
Two minutes:
  troupe demo                                  the whole thing in one command; leaves nothing behind
  troupe up                                    the pair, until Ctrl-C
  troupe spawn explorer -m 'Where is main?' --wait
  troupe ps --tree

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by a limit or a policy.";

/// Gives AI agents their roles and watches over them.
#[derive(Debug, Parser)]
#[command(name = "troupe", version, styles = STYLES, after_help = AFTER_HELP, max_term_width = 110)]
pub(crate) struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Shared flags that are also settings of `up`.
pub(crate) const SHARED_SETTINGS: &[&str] = &["data_dir"];

/// The output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Text,
    /// For scripts: one JSON object a line.
    Json,
    /// For code scanners: SARIF 2.1.0; `lint` only.
    Sarif,
}

/// When the templates around the working directory are uploaded to the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum UploadWorkspace {
    /// Where the registry's address is not this machine's.
    #[default]
    Auto,
    /// Wherever it is.
    Always,
    /// Never: it reads its own disk.
    Never,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// How answers are written
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Output,
    /// Where the supervisor is
    #[arg(
        long,
        global = true,
        env = "TROUPE_SUPERVISOR_URL",
        default_value = "http://127.0.0.1:50052",
        value_name = "URL"
    )]
    pub(crate) supervisor: String,
    /// URL of the registry
    #[arg(
        long,
        global = true,
        env = "TROUPE_REGISTRY_URL",
        default_value = "http://127.0.0.1:50051",
        value_name = "URL"
    )]
    pub(crate) registry: String,
    /// Upload the templates around the working directory, for a registry that does not see this disk
    ///
    /// The templates of the project and of your home are sent to the registry once, are named by their content, and
    /// stand for the directory in every question about it; a session that is opened keeps them. Without this flag that
    /// happens where the registry's address is not this machine's. Give it for a registry behind a tunnel or in a
    /// container: `troupe agents --upload-workspace`.
    #[arg(
        long,
        global = true,
        env = "TROUPE_UPLOAD_WORKSPACE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_value_t,
        default_missing_value = "always",
        value_name = "WHEN"
    )]
    pub(crate) upload_workspace: UploadWorkspace,
    /// Who you are; without it, `operator.token` in the data directory
    #[arg(
        long,
        global = true,
        env = "TROUPE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) token: Option<Given>,
    /// A file with it, in its first line
    #[arg(
        long,
        global = true,
        env = "TROUPE_TOKEN_FILE",
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// How services over TLS are reached
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// Data directory of `up` [default: the XDG data directory]
    #[arg(long, global = true, env = "TROUPE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// How services are reached whose URLs begin with https.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct TlsArgs {
    /// Whose certificates a service may have, where its URL begins with https: PEM [default: the public authorities]
    #[arg(
        long,
        global = true,
        env = "TROUPE_CA",
        value_name = "FILE",
        help_heading = "Connection"
    )]
    pub(crate) ca: Option<PathBuf>,
    /// Your own certificate, which says who you are, instead of a token: PEM
    #[arg(
        long,
        global = true,
        env = "TROUPE_CLIENT_CERT",
        value_name = "FILE",
        requires = "client_key",
        help_heading = "Connection"
    )]
    pub(crate) client_cert: Option<PathBuf>,
    /// The key of it: PEM
    #[arg(
        long,
        global = true,
        env = "TROUPE_CLIENT_KEY",
        value_name = "FILE",
        requires = "client_cert",
        help_heading = "Connection"
    )]
    pub(crate) client_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the certificate files: the authorities to trust and the client certificate to present.
    pub(crate) fn files(&self) -> ClientFiles {
        // The MCP server of a thread reads the CA file from another working directory, so the path is absolute.
        let whole = |path: &PathBuf| path::absolute(path).unwrap_or_else(|_| path.clone());
        ClientFiles {
            authorities: self.ca.as_ref().map(whole),
            identity: self.client_cert.clone().zip(self.client_key.clone()),
        }
    }
}

/// The commands. Each has a module of its own under [`crate::commands`].
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_workspace_is_uploaded_by_need_unless_told_otherwise() {
        let when = |arguments: &[&str]| {
            let line = ["troupe", "agents"].iter().chain(arguments);
            Cli::try_parse_from(line).map(|cli| cli.global.upload_workspace)
        };
        assert!(matches!(when(&[]), Ok(UploadWorkspace::Auto)));
        // The next value is the role, not the upload mode.
        assert!(matches!(
            when(&["--upload-workspace", "worker"]),
            Ok(UploadWorkspace::Always)
        ));
        assert!(matches!(
            when(&["--upload-workspace=never"]),
            Ok(UploadWorkspace::Never)
        ));
        assert!(when(&["--upload-workspace=sometimes"]).is_err());
    }

    #[test]
    fn every_help_has_an_example() {
        for command in Cli::command()
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
        {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                after.contains("troupe ") || after.contains("troupe\n"),
                "`troupe {} --help` shows no example",
                command.get_name()
            );
        }
    }
}
