//! The registry as a program of its own.
#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Parser;
use registry_svc::{Config, ForeignFormat, Registry, TemplateOptions};
use serde_json::json;
use svc_kit::{
    admin::{Admin, AdminOptions},
    auth::{Authenticator, Trust},
    identity::OperatorRole,
    jwt::{Jwt, JwtOptions},
    listen, paths,
    secret::SecretToken,
    serve::{Listener, ServeLimits},
    shutdown::Shutdown,
    telemetry::{self, LogFormat},
    tls::TlsOptions,
    traces::Traces,
};

/// Knows the cast: discovers role templates, lists them, and resolves what a spawn gets.
///
/// Example: registry-svc --workspace-root ~/projects
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Where to listen. Port 0 picks a free one; see --ready-file.
    #[arg(long, env = "TROUPE_REGISTRY_LISTEN", default_value = "127.0.0.1:50051")]
    registry_listen: String,
    /// Where `.codex/` of the user scope lies. Default: the user's home.
    #[arg(long, env = "TROUPE_HOME")]
    home: Option<PathBuf>,
    /// A directory that projects may lie in; repeatable. Default: the home, on loopback only.
    #[arg(long = "workspace-root", env = "TROUPE_WORKSPACE_ROOTS", value_delimiter = ':')]
    workspace_roots: Vec<PathBuf>,
    /// The catalogue of models. Without, every model passes.
    #[arg(long, env = "TROUPE_MODELS")]
    models: Option<PathBuf>,
    /// Read the agents of another program too: claude, opencode, copilot, gemini or codex; repeatable, first wins.
    #[arg(long, env = "TROUPE_IMPORT", value_delimiter = ',', value_parser = foreign_format)]
    import: Vec<ForeignFormat>,
    /// What templates may say.
    #[command(flatten)]
    templates: TemplateOptions,
    /// Leave the user's templates alone.
    #[arg(long)]
    no_seed: bool,
    /// A file with the token that callers must show. Without, calls from this machine are trusted.
    #[arg(long, env = "TROUPE_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// TLS.
    #[command(flatten)]
    tls: TlsOptions,
    /// Operators of an identity provider.
    #[command(flatten)]
    jwt: JwtOptions,
    /// The admin port.
    #[command(flatten)]
    admin: AdminOptions,
    /// Serve off loopback although nobody has to prove who they are.
    #[arg(long)]
    insecure: bool,
    /// Write `{"registry": "host:port"}` to this file once the service serves.
    #[arg(long)]
    ready_file: Option<PathBuf>,
    /// What to log, as `RUST_LOG` has it.
    #[arg(long, env = "TROUPE_LOG", default_value = "info")]
    log: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(run(Options::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn foreign_format(name: &str) -> Result<ForeignFormat, String> {
    ForeignFormat::parse(name).ok_or_else(|| {
        let known: Vec<_> = ForeignFormat::ALL.iter().map(|format| format.as_str()).collect();
        format!("unknown format {name:?}; known are {}", known.join(", "))
    })
}

async fn run(options: Options) -> anyhow::Result<()> {
    telemetry::init_logging(LogFormat::Text, &options.log)?;
    let traces = Traces::start("registry-svc")?;
    let listener = listen::bind(&options.registry_listen).await?;
    let admin = Admin::open(options.admin, "registry-svc").await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let token = options.token_file.map(|path| SecretToken::load(&path)).transpose()?;
    let jwt = Jwt::load(options.jwt)?;
    let knows_callers = token.is_some() || jwt.is_some() || options.tls.knows_clients();
    listen::refuse_open_bind(address, knows_callers, options.insecure)?;
    let listener = Listener::new(listener, options.tls.load()?).tells(admin.as_ref());
    let authenticator = match (token, options.insecure) {
        // One token serves people and the supervisor: to the registry both may read everything.
        (Some(token), _) => Authenticator::new().operator("token", OperatorRole::Admin, token),
        (None, true) => Authenticator::new().trust(Trust::Everybody),
        (None, false) if knows_callers => Authenticator::new(),
        (None, false) => Authenticator::new().trust(Trust::Loopback),
    };
    let authenticator = authenticator.jwt(jwt);
    let home = match options.home {
        Some(home) => home,
        None => paths::default_home()?,
    };
    let workspace_roots = if options.workspace_roots.is_empty() && listen::is_loopback(address.ip()) {
        vec![home.clone()]
    } else {
        options.workspace_roots
    };
    anyhow::ensure!(
        !workspace_roots.is_empty(),
        "off loopback the directories that projects may lie in must be named: pass --workspace-root DIR for each"
    );
    let config = Config {
        home: Some(home),
        workspace_roots,
        seed: !options.no_seed,
        models: options.models,
        import: options.import,
        project_templates: options.templates.project_templates(),
        allowed_endpoints: options.templates.allowed_endpoints,
        auto_route: options.templates.auto_route,
        ..Config::default()
    };
    let registry = tokio::task::spawn_blocking(move || Registry::open(config)).await??;
    let shutdown = Shutdown::new();
    tokio::spawn(shutdown.clone().on_signal());
    tracing::info!(%address, "registry-svc serves");
    if let Some(path) = options.ready_file {
        let mut said = json!({ "registry": address.to_string() });
        if let Some(admin) = &admin {
            said["admin"] = json!(admin.address().to_string());
        }
        paths::write_ready_file(&path, &said)?;
    }
    let serving = registry.serve(listener, authenticator, ServeLimits::default(), shutdown);
    Admin::beside(admin, serving).await?;
    if let Some(traces) = traces {
        traces.end().await;
    }
    Ok(())
}
