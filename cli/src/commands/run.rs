//! `troupe run`: starts a runner on this machine for a local or remote supervisor.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    env,
    ffi::OsStr,
    future::pending,
    os::unix::ffi::OsStrExt as _,
    path::{self, Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use svc_kit::{
    admin::{Admin, AdminOptions, READINESS},
    program,
    shown_token::ShownToken,
    shutdown::Signals,
    telemetry::Telemetry,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use troupe_client::{
    Service,
    token::{Origin, Token},
};
use troupe_runner::{ProcessProgram, RunnerConfig, RunnerError, launcher, program_check::ProgramReport};

use crate::{
    context::Context,
    error::{Error, Result},
    pair,
    programs::{self, WorktreeArgs},
    stop, time,
    ui::Ui,
};

/// The name under which the admin port reports that the runner has been attached at least once.
const ATTACHED: &str = "attached";

const AFTER_HELP: &str = "\
Examples:
  troupe run
  troupe run --supervisor http://10.0.0.7:50052 --capacity 8 --label gpu=yes
  troupe run --programs claude
  troupe run --programs ./runner.yaml
  troupe run --programs codex --worktrees
  troupe run --holds-read-only --program ./my-agent --verbose

Without --programs and --program it runs the sample agent, which obeys directives in its prompt and calls no model.";

/// The arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// ID of the runner, stable across restarts [default: the name of this machine]
    #[arg(long, value_name = "ID", env = "TROUPE_RUNNER_ID")]
    runner_id: Option<String>,
    /// Maximum number of threads at once; 0: unlimited
    #[arg(long, value_name = "NUMBER", default_value_t = 64)]
    capacity: u32,
    /// Label for placement (repeatable)
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Run threads of this session only
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Run one thread, and end when it is closed or placed elsewhere
    #[arg(long, conflicts_with = "capacity")]
    one_thread: bool,
    /// Run threads of one session (the session of the first thread), and end when all of them are closed or placed
    /// elsewhere
    #[arg(long, conflicts_with = "one_thread")]
    one_session: bool,
    /// Directory for temporary directories of threads [default: the system's]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Directory for state that programs need after a restart, such as sessions to resume [default: in the data
    /// directory]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Program that executes threads: sample (the default, without a model), codex, claude, opencode, gemini, or a
    /// runner.yaml
    #[arg(long, value_name = "PROGRAMS", env = "TROUPE_PROGRAMS", conflicts_with = "program")]
    programs: Option<programs::Choice>,
    /// Time for running turns to finish when the runner stops; then they are interrupted
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = time::parse_duration)]
    drain: Duration,
    /// The admin port
    #[command(flatten)]
    admin: AdminOptions,
    /// Where threads work
    #[command(flatten)]
    worktrees: WorktreeArgs,
    /// Assert that the program enforces read-only access for read-only threads
    #[arg(long)]
    holds_read_only: bool,
    /// Confine programs with Landlock where bubblewrap does not work, such as in restricted pods
    #[arg(long)]
    landlock: bool,
    /// Socket of a launcher, which starts all programs in another container: see `troupe launcher`
    #[arg(long, value_name = "SOCKET")]
    launcher: Option<PathBuf>,
    /// Agent program and its arguments; must be the last flag
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    program: Vec<String>,
}

fn parse_label(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("expected KEY=VALUE, not {text:?}")),
    }
}

/// Runs threads until SIGINT or SIGTERM, or until the runner ends.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    pair::init_logging("info")?;
    // The first process of a container does not receive signals for which it has no handler.
    let mut signals = Signals::listen()?;
    let options = args.admin.clone();
    if let Some(socket) = &args.launcher {
        let socket = absolute(socket);
        tokio::select! {
            started = launcher::start_programs_at(&socket, programs::own()?.into()) => started.map_err(Error::of)?,
            () = signals.next() => return Ok(()),
        }
    }
    let config = config(args, context)?;
    report_programs(&config, context.ui.clone());
    let is_read_here = options.admin_listen.is_some();
    let telemetry = Telemetry::start("troupe-runner", is_read_here).map_err(|error| Error::usage(error.to_string()))?;
    let mut admin = Admin::start(&options, &telemetry, &[READINESS, ATTACHED])
        .await
        .map_err(|error| {
            Error::of(error)
                .context("cannot start the admin port")
                .hint("pass another address with --admin-listen, or omit it to run without an admin port")
        })?;
    let ready = config.ready.subscribe();
    let ran = tokio::select! {
        ran = Box::pin(run_until_signal(config, context, signals)) => ran,
        never = publish_readiness(admin.as_mut(), ready, context) => match never {},
    };
    program::farewell(admin, telemetry).await;
    ran
}

/// Reports on the agent programs while the runner starts.
fn report_programs(config: &RunnerConfig, ui: Ui) {
    let programs = config.programs.clone();
    tokio::spawn(async move {
        let Ok(reports) = programs::check(&programs).await else {
            return;
        };
        // A program of the kind `process` has neither a version nor credentials, so only its warnings are reported.
        let is_worth_it = |report: &ProgramReport| report.tested.is_some() || !report.warnings.is_empty();
        let reports: Vec<ProgramReport> = reports.into_iter().flatten().filter(is_worth_it).collect();
        if !ui.is_text() && !reports.is_empty() {
            let reports: Vec<_> = reports.iter().map(programs::report_json).collect();
            // A closed standard output does not stop a runner.
            let _ = ui.value(&json!({ "programs": reports }));
        } else {
            for line in reports.iter().flat_map(programs::report_lines) {
                ui.note(line);
            }
        }
    });
}

/// Publishes the runner's readiness on the admin port. Reports a failure of the port on standard error. Has to be
/// polled; never returns. The failure does not stop running turns, because the admin port is only for monitoring.
async fn publish_readiness(
    admin: Option<&mut Admin>,
    mut ready: watch::Receiver<bool>,
    context: &Context,
) -> Infallible {
    if let Some(admin) = admin {
        let mut was_attached = false;
        loop {
            tokio::select! {
                changed = ready.changed() => {
                    if changed.is_err() {
                        // The runner has ended, so its readiness does not change any more.
                        break;
                    }
                    if !was_attached {
                        was_attached = true;
                        admin.announce(&[ATTACHED], true).await;
                    }
                    let is_ready = *ready.borrow_and_update();
                    admin.announce(&[READINESS], is_ready).await;
                }
                error = admin.broken_off() => {
                    let address = admin.address();
                    let error = Error::of(error)
                        .context(format!("health and metrics are no longer served at {address}"))
                        .hint("the runner continues without them; restart it to serve them");
                    context.ui.error(&error);
                    break;
                }
            }
        }
    }
    pending().await
}

/// Returns the token for a long-running process. A token from a file is read again when the file changes.
fn shown_token(token: &Token) -> Result<Option<ShownToken>> {
    match (token.origin(), token.expose()) {
        (Origin::File(path) | Origin::Found(path), _) => ShownToken::load(path.clone()).map(Some).map_err(Error::of),
        (Origin::Given, Some(text)) => text.parse::<ShownToken>().map(Some).map_err(Error::usage),
        (Origin::Given | Origin::Nowhere, _) => Ok(None),
    }
}

fn config(args: Args, context: &Context) -> Result<RunnerConfig> {
    let address = context.global.settings().address(Service::Supervisor)?;
    let token = context.global.settings().token(address.host())?;
    let programs = match args.program.split_first() {
        Some((command, rest)) => ProcessProgram {
            holds_read_only: args.holds_read_only,
            ..ProcessProgram::new(command, rest.iter().cloned())
        }
        .into(),
        None => args.programs.unwrap_or_default().programs()?,
    };
    let mut programs = programs::all_found(programs)?;
    programs.landlock |= args.landlock;
    let data_dir = context.data_dir()?;
    let state = args.state.unwrap_or_else(|| programs::state_in(&data_dir));
    let runner_id = args.runner_id.unwrap_or_else(default_runner_id);
    let scratch = args.scratch.unwrap_or_else(|| env::temp_dir().join("troupe-runner"));
    // The paths are absolute, because programs run in other working directories.
    let mut config = RunnerConfig::new(runner_id, address.uri().to_string(), programs, absolute(&scratch));
    config.state = absolute(&state);
    // Programs of a launcher run in another container, which does not have these files.
    if args.launcher.is_none() {
        config.hidden = secrets(context, &data_dir);
    }
    config.worktrees = args.worktrees.worktrees;
    config.hook = programs::hook()?;
    config.tls = context.global.tls.files();
    config.token = shown_token(&token)?;
    config.labels = args.labels.into_iter().collect::<BTreeMap<_, _>>();
    config.capacity = if args.one_thread { 1 } else { args.capacity };
    config.session_id = args.session;
    config.is_single_use = args.one_thread || args.one_session;
    config.timing.drain_limit = args.drain;
    Ok(config)
}

/// Returns the paths to hide from agents. Warns about each file that agents could read while it is replaced.
fn secrets(context: &Context, data_dir: &Path) -> Vec<PathBuf> {
    let secrets: Vec<PathBuf> = [&context.global.token_file, &context.global.tls.client_key]
        .into_iter()
        .flatten()
        .map(|path| absolute(path))
        .collect();
    let data_dir = absolute(data_dir);
    let is_exposed = |path: &&PathBuf| !path.starts_with(&data_dir) && secrets_directory(path).is_none();
    for path in secrets.iter().filter(is_exposed) {
        context.ui.note(format!(
            "agents that run while {} is replaced can read the new file; move it into a separate directory",
            path.display()
        ));
    }
    hidden(data_dir, secrets)
}

/// Returns the paths to hide from agents: the files that would authenticate an agent as a runner or an operator. For
/// files that are replaced at run time, only hiding the directory is effective.
fn hidden(data_dir: PathBuf, secrets: Vec<PathBuf>) -> Vec<PathBuf> {
    let directories: Vec<PathBuf> = secrets.iter().filter_map(|path| secrets_directory(path)).collect();
    [data_dir].into_iter().chain(directories).chain(secrets).collect()
}

/// Returns the directory of a secret if it contains only secrets: other tokens, and the links through which a kubelet
/// replaces files. Agents may need the content of any other directory.
fn secrets_directory(secret: &Path) -> Option<PathBuf> {
    let directory = secret.parent()?;
    let is_secret = |name: &OsStr| {
        Some(name) == secret.file_name()
            || Path::new(name)
                .extension()
                .is_some_and(|extension| extension == "token")
            || name.as_bytes().starts_with(b"..")
    };
    let mut entries = directory.read_dir().ok()?;
    let has_secrets_only = entries.all(|entry| entry.is_ok_and(|entry| is_secret(&entry.file_name())));
    has_secrets_only.then(|| directory.to_owned())
}

fn absolute(path: &Path) -> PathBuf {
    path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

async fn run_until_signal(config: RunnerConfig, context: &Context, mut signals: Signals) -> Result<()> {
    let drain = config.timing.drain_limit;
    context.ui.note(format!(
        "runner {} for {}; Ctrl-C stops it",
        config.runner_id, config.supervisor_url
    ));
    let stop = CancellationToken::new();
    let address = context.global.settings().address(Service::Supervisor)?;
    let has_found_token = context.global.settings().token(address.host())?.is_found();
    let mut runner = Box::pin(async {
        match troupe_runner::run(config.clone(), stop.clone()).await {
            // A token from the data directory may belong to another service.
            Err(RunnerError::Refused {
                code: Code::Unauthenticated,
                ..
            }) if has_found_token => {
                let without_token = RunnerConfig { token: None, ..config };
                troupe_runner::run(without_token, stop.clone()).await
            }
            ran => ran,
        }
    });
    let ran = tokio::select! {
        ran = &mut runner => ran,
        () = signals.next() => {
            context.ui.note(stop::announcement(Some(drain)));
            stop.cancel();
            let stopping = async { Ok(runner.await) };
            stop::until_done_or_second_signal(&mut signals, stopping).await?
        }
    };
    let ended = ran.map_err(Error::of)?;
    stop::list_interrupted(context, &ended);
    Ok(())
}

/// Returns the host name, which is stable, so that the supervisor recognizes a restarted runner.
fn default_runner_id() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "runner".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn directory_is_hidden_only_if_it_holds_secrets_only() {
        let directory = tempfile::tempdir().unwrap();
        let token = directory.path().join("runner.token");
        for name in ["runner.token", "operator.token", "..data"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let of = || hidden(PathBuf::from("/data"), vec![token.clone()]);
        let data = PathBuf::from("/data");
        assert_eq!(of(), [data.clone(), directory.path().to_owned(), token.clone()]);
        fs::write(directory.path().join("ca.crt"), "").unwrap();
        assert_eq!(of(), [data, token.clone()]);
    }

    #[test]
    fn long_running_token_follows_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "from-the-file\n").unwrap();
        let settings = troupe_client::Settings {
            token_file: Some(path.clone()),
            ..Default::default()
        };
        let token = shown_token(&settings.token("127.0.0.1").unwrap()).unwrap().unwrap();
        assert_eq!(token.present().expose(), "from-the-file");
        fs::write(&path, "from-the-file-as-it-is-now\n").unwrap();
        assert_eq!(token.present().expose(), "from-the-file-as-it-is-now");

        let given = shown_token(&Token::given("s3cret")).unwrap().unwrap();
        assert_eq!(given.present().expose(), "s3cret");
        assert!(shown_token(&Token::none()).unwrap().is_none());
        let refused = shown_token(&Token::given("two s3crets")).unwrap_err();
        assert!(!refused.to_string().contains("s3crets"), "{refused}");
    }

    #[test]
    fn label_without_key_is_rejected() {
        assert_eq!(parse_label("gpu=yes"), Ok(("gpu".to_owned(), "yes".to_owned())));
        assert_eq!(parse_label("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(parse_label("flag="), Ok(("flag".to_owned(), String::new())));
        assert!(parse_label("=x").is_err() && parse_label("x").is_err());
    }
}
