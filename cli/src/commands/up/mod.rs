//! `troupe up`: both services, embedded storage and a runner, in one process.

mod settings;

use std::path::PathBuf;

use clap::ArgMatches;
use registry_svc::TemplateOptions;
use serde_json::{Value, json};
use supervisor_svc::StallOptions;
use svc_kit::{paths, shutdown::Shutdown, traces::Traces};

use self::settings::Settings;
use crate::{
    context::Context,
    error::{Error, Result},
    pair::{self, Pair},
    programs, sanitize, token,
    ui::{Line, columns, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe up
  troupe up --registry-listen 127.0.0.1:0 --supervisor-listen 127.0.0.1:0 --ready-file ready.json
  troupe up --config troupe.yaml --print-config

Settings come from, each over the one before: the defaults, --config FILE, TROUPE_* variables, flags.
In the file they have the names of the flags with underscores: `max_depth: 3`; the lists are
`workspace_roots`, `import` and `allowed_endpoints`.";

/// The arguments of `up`. What is absent comes from the file or the defaults; see [`settings`].
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Where the registry listens; port 0 picks a free one [default: 127.0.0.1:50051]
    #[arg(long, env = "TROUPE_REGISTRY_LISTEN", value_name = "HOST:PORT")]
    registry_listen: Option<String>,
    /// Where the supervisor listens; port 0 picks a free one [default: 127.0.0.1:50052]
    #[arg(long, env = "TROUPE_SUPERVISOR_LISTEN", value_name = "HOST:PORT")]
    supervisor_listen: Option<String>,
    /// Where plaintext health (gRPC) and metrics (HTTP) are served [default: off]
    #[arg(long, env = "TROUPE_ADMIN_LISTEN", value_name = "HOST:PORT")]
    admin_listen: Option<String>,
    /// Where `.codex/` of the user scope lies [default: your home]
    #[arg(long, env = "TROUPE_HOME", value_name = "DIR")]
    home: Option<PathBuf>,
    /// A directory that projects may lie in (repeatable) [default: your home on loopback; required otherwise]
    #[arg(
        long = "workspace-root",
        env = "TROUPE_WORKSPACE_ROOTS",
        value_delimiter = ':',
        value_name = "DIR"
    )]
    workspace_roots: Vec<PathBuf>,
    /// Read another program's agents too: claude, opencode, copilot, gemini or codex (repeatable) [default: none]
    #[arg(long, env = "TROUPE_IMPORT", value_delimiter = ',', value_name = "FORMAT")]
    import: Vec<String>,
    /// A catalogue of models [default: none; every model is taken as it is]
    #[arg(long, env = "TROUPE_MODELS", value_name = "FILE")]
    models: Option<PathBuf>,
    /// What templates may say
    #[command(flatten)]
    templates: TemplateOptions,
    /// The deepest thread, the root being 0 [default: 2]
    #[arg(long, env = "TROUPE_MAX_DEPTH", value_name = "NUMBER")]
    max_depth: Option<u32>,
    /// Active threads of a session, the root not counted [default: 12]
    #[arg(long, env = "TROUPE_MAX_THREADS", value_name = "NUMBER")]
    max_threads: Option<u32>,
    /// Threads of a session that are not closed [default: 1000]
    #[arg(long, env = "TROUPE_MAX_OPEN_THREADS", value_name = "NUMBER")]
    max_open_threads: Option<u32>,
    /// When an agent counts as stalled
    #[command(flatten)]
    stall: StallOptions,
    /// Bytes of content (inputs, prompts, results) of a session [default: 1073741824]
    #[arg(long, env = "TROUPE_SESSION_CONTENT_BYTES", value_name = "BYTES")]
    session_content_bytes: Option<u64>,
    /// Send notifications to webhooks at private, loopback and link-local addresses too
    #[arg(long, env = "TROUPE_WEBHOOK_ALLOW_PRIVATE")]
    webhook_allow_private: bool,
    /// Leave the user's templates alone
    #[arg(long)]
    no_seed: bool,
    /// Start no runner; threads wait until one attaches
    #[arg(long)]
    no_runner: bool,
    /// What executes threads: sample (the default, which calls no model), codex, claude, opencode, gemini, or a runner.yaml
    #[arg(long, value_name = "PROGRAMS", env = "TROUPE_PROGRAMS")]
    programs: Option<programs::Choice>,
    /// Where threads work
    #[command(flatten)]
    worktrees: programs::WorktreeArgs,
    /// Take calls from this machine without a token as the operator's
    #[arg(long)]
    trust_loopback: bool,
    /// Listen off loopback without authentication
    #[arg(long)]
    insecure: bool,
    /// A YAML file with settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show every setting and where it comes from, and start nothing
    #[arg(long)]
    print_config: bool,
    /// Write the addresses as JSON into this file once both services serve
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
}

/// Starts the pair, says where it is, and waits for SIGINT or SIGTERM.
pub(crate) async fn run(args: Args, context: &Context, matches: &ArgMatches) -> Result<()> {
    let own = matches.subcommand_matches("up").unwrap_or(matches);
    let (print_config, ready_file) = (args.print_config, args.ready_file.clone());
    let settings = Settings::gather(args, context, own)?;
    if print_config {
        return context.ui.answer(|| settings.to_json(), || settings.to_text());
    }
    pair::init_logging("warn")?;
    let traces = Traces::start("troupe").map_err(|error| Error::usage(error.to_string()))?;
    // Before anything starts: a signal during the start stops it as well.
    let mut signal = Box::pin(Shutdown::new().on_signal());
    let mut pair = tokio::select! {
        pair = Pair::start(settings.options) => pair?,
        signalled = &mut signal => return Ok(signalled?),
    };
    if let Some(path) = ready_file {
        paths::write_ready_file(&path, &addresses(&pair)).map_err(|error| Error::failure(error.to_string()))?;
    }
    context.ui.answer(|| ready(&pair), || banner(&pair))?;
    let ended = tokio::select! {
        signalled = &mut signal => signalled.map_err(Error::from),
        error = pair.failed() => Err(error),
    };
    context.ui.note("stopping");
    let stopped = pair.stop().await;
    if let Some(traces) = traces {
        traces.end().await;
    }
    ended.and(stopped)
}

fn addresses(pair: &Pair) -> Value {
    let mut addresses = json!({
        "registry": pair.registry().to_string(),
        "supervisor": pair.supervisor().to_string(),
    });
    if let Some(admin) = pair.admin() {
        addresses["admin"] = json!(admin.to_string());
    }
    addresses
}

fn ready(pair: &Pair) -> Value {
    let mut ready = addresses(pair);
    ready["data_dir"] = json!(pair.data_dir());
    ready["operator_token_file"] = json!(pair.token_file());
    ready["try"] = json!(try_this(pair));
    ready
}

fn banner(pair: &Pair) -> String {
    let columns = columns();
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
    if let Some(admin) = pair.admin() {
        lines.push(field(
            "metrics",
            format!("http://{admin}/metrics, and health over gRPC"),
        ));
    }
    if let Some(path) = pair.token_file() {
        lines.push(field(
            "token",
            format!("{} (the command line reads it by itself)", path.display()),
        ));
    }
    lines.push(String::new());
    lines.push(style::paint(style::DIM, "Try:").to_string());
    // Never cut at the edge: it is there to be copied.
    lines.push(format!("  {}", sanitize::line(&try_this(pair))));
    lines.push(String::new());
    lines.push(style::paint(style::DIM, "Ctrl-C stops it; threads survive that.").to_string());
    lines.join("\n")
}

/// A line to copy into another terminal.
fn try_this(pair: &Pair) -> String {
    let header = pair.token_file().map_or_else(String::new, |path| {
        debug_assert!(path.ends_with(token::FILE));
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

/// The word as a shell reads it back.
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
    fn paths_survive_the_shell() {
        assert_eq!(
            shell_word("/home/me/.local/share/troupe"),
            "/home/me/.local/share/troupe"
        );
        assert_eq!(shell_word("/tmp/it's here"), r"'/tmp/it'\''s here'");
        assert_eq!(shell_word(""), "''");
    }
}
