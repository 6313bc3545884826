//! `troupe up`: runs both services, embedded storage and a runner in one process.

mod a2a;

use std::{net::SocketAddr, path::PathBuf};

use registry_svc::CatalogueOptions;
use serde_json::{Value, json};
use supervisor_svc::{BackupOptions, SessionOptions, StoreOptions};
use svc_kit::{
    admin::AdminOptions,
    paths,
    settings::{Format, Setting, Settings, SettingsOptions},
    shutdown::Signals,
};
use troupe_runner::program_check::ProgramReport;

use super::{console, down};
use troupe_client::data_dir::{OPERATOR_TOKEN, Running};

use crate::{
    background,
    context::Context,
    error::{Error, Result},
    pair::{self, Pair, PairOptions, RunnerOptions},
    programs, sanitize, stop,
    ui::{Cell, Fields, Line, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe up
  troupe up --console
  troupe up --registry-listen 127.0.0.1:0 --supervisor-listen 127.0.0.1:0 --ready-file ready.json
  troupe up --config troupe.yaml --print-config

Sources of settings, from lowest to highest precedence: defaults, --config FILE, TROUPE_* variables, flags.
In the file they have the names of the flags with underscores: `max_depth: 3`; the lists are
`workspace_roots`, `import` and `allowed_endpoints`.";

/// The arguments of `up`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Start in the background; `troupe down` stops the services
    #[arg(short, long)]
    detach: bool,
    /// Address of the registry; port 0 selects a free port
    #[arg(
        long,
        env = "TROUPE_REGISTRY_LISTEN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:50051"
    )]
    registry_listen: String,
    /// Address of the supervisor; port 0 selects a free port
    #[arg(
        long,
        env = "TROUPE_SUPERVISOR_LISTEN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:50052"
    )]
    supervisor_listen: String,
    /// The admin port.
    #[command(flatten)]
    admin: AdminOptions,
    /// The templates.
    #[command(flatten)]
    catalogue: CatalogueOptions,
    /// The limits of sessions.
    #[command(flatten)]
    sessions: SessionOptions,
    /// The store of the log.
    #[command(flatten)]
    store: StoreOptions,
    /// Scheduled backups.
    #[command(flatten)]
    backups: BackupOptions,
    /// Start no runner; threads wait until a runner attaches
    #[arg(long)]
    no_runner: bool,
    /// Program that executes threads: sample (without a model), codex, claude, opencode, gemini, or a runner.yaml
    #[arg(
        long,
        value_name = "PROGRAMS",
        env = "TROUPE_PROGRAMS",
        default_value_t = programs::Choice::Sample
    )]
    programs: programs::Choice,
    /// The worktrees.
    #[command(flatten)]
    worktrees: programs::WorktreeArgs,
    /// The web console.
    #[command(flatten)]
    console: console::UpArgs,
    /// The A2A port.
    #[command(flatten)]
    a2a: a2a::A2aArgs,
    /// Grant operator permissions to local calls without a token
    #[arg(long)]
    trust_loopback: bool,
    /// Serve on a non-loopback address without authentication
    #[arg(long)]
    insecure: bool,
    /// The sources of settings.
    #[command(flatten)]
    settings: SettingsOptions,
    /// Write the addresses as JSON into this file once both services serve
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

impl Args {
    fn options(self, data_dir: PathBuf) -> Result<PairOptions> {
        let postgres = self.store.postgres(self.backups.backup_dir.is_some());
        let backups = self.backups.settings(&data_dir);
        Ok(PairOptions {
            registry_listen: self.registry_listen,
            supervisor_listen: self.supervisor_listen,
            admin: self.admin,
            data_dir,
            catalogue: self.catalogue,
            sessions: Some(self.sessions),
            postgres: postgres.map_err(|error| Error::usage(format!("{error:#}")))?,
            backups: backups.map_err(|error| Error::usage(error.to_string()))?,
            runner: (!self.no_runner).then_some(RunnerOptions {
                programs: self.programs,
                worktrees: self.worktrees.worktrees,
                only: None,
            }),
            trust_loopback: self.trust_loopback,
            insecure: self.insecure,
        })
    }
}

/// Starts the pair, prints its addresses, and waits for SIGINT or SIGTERM.
pub(crate) async fn run(args: Args, context: &Context, mut settings: Settings) -> Result<()> {
    let data_dir = context.data_dir()?;
    if let Some(format) = args.settings.print_config {
        settings.computed("data_dir", data_dir.display());
        if let Ok(home) = paths::default_home() {
            settings.computed("home", home.display());
        }
        return match format {
            Format::Json => context.ui.answer(|| settings.to_json(), || settings.to_text(format)),
            Format::Text => context.ui.answer(|| settings.to_json(), || table(&settings)),
        };
    }
    if args.detach && !background::is_detached() {
        let running = background::start(&data_dir).await?;
        let log = background::log(&data_dir);
        return context.ui.answer(
            || json!({ "pid": running.pid, "registry": running.registry, "supervisor": running.supervisor, "log": log }),
            || {
                Fields::default()
                    .field("process", running.pid.to_string())
                    .field("registry", &running.registry)
                    .field("supervisor", &running.supervisor)
                    .field("log", log.display().to_string())
                    .field("stop", "troupe down")
            },
        );
    }
    pair::init_logging("warn")?;
    let ready_file = args.ready_file.clone();
    let agent_programs = (!args.no_runner).then(|| args.programs.clone());
    let checking = checked_programs(&args)?;
    let console = args.console.bind().await?;
    let a2a = args.a2a.bind(args.insecure).await?;
    let options = args.options(data_dir.clone())?;
    // Installed first, so that a signal also stops the startup.
    let mut signals = Signals::listen()?;
    let mut pair = tokio::select! {
        pair = Pair::start(options) => pair?,
        () = signals.next() => return Ok(()),
    };
    let mut a2a = a2a.map(|port| port.serve(&pair)).transpose()?;
    let a2a_address = a2a.as_ref().map(|serving| serving.address);
    let running = Running {
        pid: std::process::id(),
        registry: pair.registry().to_string(),
        supervisor: pair.supervisor().to_string(),
    };
    if let Err(error) = background::store(&running, pair.data_dir()) {
        context
            .ui
            .note(format!("`troupe down` and `troupe status` do not work: {error}"));
    }
    if let Some(path) = ready_file {
        paths::write_ready_file(&path, &addresses(&pair, a2a_address)).map_err(Error::of)?;
    }
    let agents = agents_line(agent_programs.as_ref());
    let serving = async {
        let sessions = down::open_sessions(&running, context).await.ok();
        let programs = checking.await;
        context.ui.answer(
            || ready(&pair, a2a_address, &programs),
            || banner(&pair, a2a_address, &programs, &agents, sessions, context.ui.columns()),
        )?;
        let flags = pair.flags(&context.global);
        tokio::select! {
            failed = pair.failed() => Err(failed),
            failed = console::serve_for(console, flags, &context.ui) => failed,
            failed = a2a::failed(&mut a2a) => Err(failed),
        }
    };
    let ended = tokio::select! {
        () = signals.next() => Ok(()),
        failed = serving => failed,
    };
    let turns_end_within = pair.has_runner().then_some(pair::TURNS_END_WITHIN);
    context.ui.note(stop::announcement(turns_end_within));
    background::remove(&data_dir);
    a2a::stop(a2a).await;
    let stopped = stop::until_done_or_second_signal(&mut signals, pair.stop()).await;
    if let Ok(runner) = &stopped {
        stop::list_interrupted(context, runner);
    }
    ended.and(stopped.map(drop))
}

/// Checks the programs that will run threads, concurrently with the start of the pair. The sample agent is part of this
/// binary and needs no check.
///
/// # Errors
///
/// Fails if a program is missing.
fn checked_programs(args: &Args) -> Result<impl Future<Output = Vec<ProgramReport>> + use<>> {
    let is_sample = args.no_runner || args.programs == programs::Choice::Sample;
    let checking = match is_sample {
        true => None,
        false => {
            let found = programs::all_found(args.programs.programs()?)?;
            Some(tokio::spawn(async move { programs::check(&found).await }))
        }
    };
    Ok(async move {
        let Some(checking) = checking else { return Vec::new() };
        // A failed check does not stop the pair.
        let checked = checking.await.ok().and_then(Result::ok).unwrap_or_default();
        checked.into_iter().filter_map(std::result::Result::ok).collect()
    })
}

/// Formats all settings as a table.
fn table(settings: &Settings) -> Table<3> {
    let mut table = Table::new(["SETTING", "FROM", "VALUE"]);
    for Setting { name, value, origin } in &settings.shown {
        table.row([
            Cell::new(style::NAME, name),
            Cell::new(style::DIM, origin.as_str()),
            Cell::plain(value),
        ]);
    }
    table
}

fn addresses(pair: &Pair, a2a: Option<SocketAddr>) -> Value {
    let mut addresses = json!({
        "registry": pair.registry().to_string(),
        "supervisor": pair.supervisor().to_string(),
    });
    if let Some(admin) = pair.admin() {
        addresses["admin"] = json!(admin.to_string());
    }
    if let Some(a2a) = a2a {
        addresses["a2a"] = json!(a2a.to_string());
    }
    addresses
}

fn ready(pair: &Pair, a2a: Option<SocketAddr>, programs: &[ProgramReport]) -> Value {
    let mut ready = addresses(pair, a2a);
    ready["data_dir"] = json!(pair.data_dir());
    ready["operator_token_file"] = json!(pair.token_file());
    ready["programs"] = programs.iter().map(programs::report_json).collect();
    ready["try"] = json!(try_this(pair));
    ready
}

/// Describes the programs that execute the agents.
fn agents_line(programs: Option<&programs::Choice>) -> String {
    match programs {
        None => "no runner; `troupe run` attaches one".to_owned(),
        Some(programs::Choice::Sample) => {
            "the sample program, which calls no model; --programs codex, claude, opencode or gemini selects a real one"
                .to_owned()
        }
        Some(choice) => choice.to_string(),
    }
}

fn banner(
    pair: &Pair,
    a2a: Option<SocketAddr>,
    programs: &[ProgramReport],
    agents: &str,
    sessions: Option<usize>,
    columns: usize,
) -> String {
    let field = |name: &str, value: String| {
        Line::default()
            .mark(style::DIM, format!("{name:<11}"))
            .word(style::NAME, value)
            .render(columns)
    };
    let mut lines = vec![
        field("registry", pair.registry().to_string()),
        field("supervisor", pair.supervisor().to_string()),
        field("data", pair.data_dir().display().to_string()),
    ];
    lines.push(field("agents", agents.to_owned()));
    if let Some(count) = sessions.filter(|count| *count > 0) {
        lines.push(field("sessions", format!("{count} open, `troupe ps` lists them")));
    }
    if let Some(a2a) = a2a {
        lines.push(field("A2A", format!("http://{a2a}/.well-known/agent-card.json")));
    }
    if let Some(admin) = pair.admin() {
        lines.push(field(
            "metrics",
            format!("http://{admin}/metrics, and health over gRPC"),
        ));
    }
    if let Some(path) = pair.token_file() {
        lines.push(field(
            "token",
            format!("{} (the command line reads it)", path.display()),
        ));
    }
    lines.extend(programs.iter().flat_map(programs::report_lines));
    lines.push(String::new());
    lines.push(style::paint(style::DIM, "Try:").to_string());
    // Never truncated: the line is meant to be copied.
    lines.push("  troupe spawn explorer 'Where is the main function?' --wait".to_owned());
    lines.push(format!("  {}", sanitize::line(&try_this(pair))));
    lines.push(String::new());
    let ctrl_c = if pair.has_runner() {
        "Ctrl-C interrupts running turns and stops; threads stay open and continue with `troupe send`."
    } else {
        "Ctrl-C stops it; threads stay open, and turns on attached runners continue."
    };
    lines.push(style::paint(style::DIM, ctrl_c).to_string());
    lines.join("\n")
}

/// Returns a command to copy into another terminal.
fn try_this(pair: &Pair) -> String {
    let header = pair.token_file().map_or_else(String::new, |path| {
        debug_assert!(path.ends_with(OPERATOR_TOKEN));
        format!(
            " -H \"authorization: Bearer $(cat {})\"",
            shell_word(&path.to_string_lossy())
        )
    });
    format!(
        "grpcurl -plaintext{header} -d '{{\"allow_partial\": true}}' {} troupe.registry.v1.AgentRegistryService/ListAgents",
        pair.registry()
    )
}

/// Quotes a shell argument if necessary.
fn shell_word(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/._-+:@%".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_words_are_quoted() {
        assert_eq!(
            shell_word("/home/me/.local/share/troupe"),
            "/home/me/.local/share/troupe"
        );
        assert_eq!(shell_word("/tmp/it's here"), r"'/tmp/it'\''s here'");
        assert_eq!(shell_word(""), "''");
    }
}
