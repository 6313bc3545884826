//! The supervisor as a program of its own. It runs no agents: runners attach to it.
#![forbid(unsafe_code)]

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Parser;
use serde_json::json;
use supervisor_svc::{Config, StallOptions, Supervisor, domain::settings::Limits};
use svc_kit::{
    admin::{Admin, AdminOptions},
    auth::{Authenticator, Trust},
    identity::OperatorRole,
    jwt::{Jwt, JwtOptions},
    listen,
    paths::{self, DataDir},
    secret::SecretToken,
    serve::{Listener, ServeLimits},
    shutdown::Shutdown,
    telemetry::{self, LogFormat},
    tls::{ClientFiles, TlsOptions},
    traces::Traces,
};

/// Owns the tree of agent threads. Needs a registry; runners attach to it with the token in `runner.token`.
///
/// Example: supervisor-svc --registry-url http://127.0.0.1:50051 --data-dir ./data
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Where to listen. Port 0 picks a free one; see --ready-file.
    #[arg(long, env = "TROUPE_SUPERVISOR_LISTEN", default_value = "127.0.0.1:50052")]
    supervisor_listen: String,
    /// Where the registry is.
    #[arg(long, env = "TROUPE_REGISTRY_URL", default_value = "http://127.0.0.1:50051")]
    registry_url: String,
    /// The file with the token that the registry knows this service by. Without, none is sent.
    #[arg(long, env = "TROUPE_REGISTRY_TOKEN_FILE")]
    registry_token_file: Option<PathBuf>,
    /// The file with the token of operators. Default: `operator.token` in the data directory, made at the first start.
    #[arg(long, env = "TROUPE_OPERATOR_TOKEN_FILE")]
    operator_token_file: Option<PathBuf>,
    /// The file with the token of runners. Default: `runner.token` in the data directory, made at the first start.
    #[arg(long, env = "TROUPE_RUNNER_TOKEN_FILE")]
    runner_token_file: Option<PathBuf>,
    /// Where sessions and tokens are kept. Default: `troupe` in the XDG data directory.
    #[arg(long, env = "TROUPE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The deepest thread of a session; its root is 0.
    #[arg(long, env = "TROUPE_MAX_DEPTH", default_value_t = Limits::default().max_depth)]
    max_depth: u32,
    /// Active threads of a session.
    #[arg(long, env = "TROUPE_MAX_THREADS", default_value_t = Limits::default().max_threads)]
    max_threads: u32,
    /// Threads of a session that are not closed.
    #[arg(long, env = "TROUPE_MAX_OPEN_THREADS", default_value_t = Limits::default().max_open_threads)]
    max_open_threads: u32,
    /// Send notifications to webhooks at private, loopback and link-local addresses too.
    #[arg(long, env = "TROUPE_WEBHOOK_ALLOW_PRIVATE")]
    webhook_allow_private: bool,
    /// When an agent counts as stalled.
    #[command(flatten)]
    stall: StallOptions,
    /// How many bytes of content (inputs, prompts, results) a session may hold.
    #[arg(long, env = "TROUPE_SESSION_CONTENT_BYTES", default_value_t = Config::SESSION_CONTENT_BYTES)]
    session_content_bytes: u64,
    /// Ask for a token from loopback too, as with --tls-client-ca. Without, a call from this machine that carries none is an
    /// operator's, which is safe only where no agent's programs run on it.
    #[arg(long, env = "TROUPE_REQUIRE_TOKEN")]
    require_token: bool,
    /// TLS.
    #[command(flatten)]
    tls: TlsOptions,
    /// Operators of an identity provider.
    #[command(flatten)]
    jwt: JwtOptions,
    /// The admin port.
    #[command(flatten)]
    admin: AdminOptions,
    /// The authorities of the registry's certificate, PEM. Default: the public ones.
    #[arg(long, env = "TROUPE_REGISTRY_CA", value_name = "FILE")]
    registry_ca: Option<PathBuf>,
    /// The certificate by which the registry knows this service, PEM, beside or instead of a token.
    #[arg(long, env = "TROUPE_REGISTRY_CERT", value_name = "FILE", requires = "registry_key")]
    registry_cert: Option<PathBuf>,
    /// The key of that certificate, PEM.
    #[arg(long, env = "TROUPE_REGISTRY_KEY", value_name = "FILE", requires = "registry_cert")]
    registry_key: Option<PathBuf>,
    /// Serve off loopback although nobody has to prove who they are.
    #[arg(long)]
    insecure: bool,
    /// Write `{"supervisor": "host:port"}` to this file once the service serves.
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

async fn run(options: Options) -> anyhow::Result<()> {
    telemetry::init_logging(LogFormat::Text, &options.log)?;
    let traces = Traces::start("supervisor-svc")?;
    let limits = Limits {
        max_depth: options.max_depth,
        max_threads: options.max_threads,
        max_open_threads: options.max_open_threads,
        ..Limits::default()
    };
    limits.check().map_err(anyhow::Error::msg)?;
    let stall = options.stall.rule().map_err(anyhow::Error::msg)?;
    let data_dir = match options.data_dir {
        Some(path) => path,
        None => paths::default_data_dir()?,
    };
    let data_dir = DataDir::open(&data_dir)?;
    let token = |given: Option<PathBuf>, name: &str| match given {
        Some(path) => SecretToken::load(&path),
        None => SecretToken::load_or_create(&data_dir.join(name)),
    };
    let operator = token(options.operator_token_file, "operator.token")?;
    let runner = token(options.runner_token_file, "runner.token")?;
    let registry_token = options
        .registry_token_file
        .map(|path| SecretToken::load(&path))
        .transpose()?;

    let listener = listen::bind(&options.supervisor_listen).await?;
    let admin = Admin::open(options.admin, "supervisor-svc").await?;
    let address = listener.local_addr().context("the listener has no address")?;
    listen::refuse_open_bind(address, true, options.insecure)?;
    let knows_clients = options.tls.knows_clients();
    let listener = Listener::new(listener, options.tls.load()?).tells(admin.as_ref());
    let trust = match (options.require_token || knows_clients, options.insecure) {
        (true, _) => Trust::Nobody,
        (false, true) => Trust::Everybody,
        (false, false) => Trust::Loopback,
    };
    let authenticator = Authenticator::new()
        .operator("local", OperatorRole::Admin, operator)
        .runner("local", runner)
        .jwt(Jwt::load(options.jwt)?)
        .trust(trust);

    let mut config = Config::new(data_dir.path().to_owned(), options.registry_url);
    config.registry_token = registry_token;
    anyhow::ensure!(
        options.registry_ca.is_none() && options.registry_cert.is_none() || config.registry_url.starts_with("https://"),
        "the registry at {} is not reached over TLS: leave --registry-ca and --registry-cert out, or give a URL that begins \
         with https",
        config.registry_url
    );
    config.registry_tls = ClientFiles {
        authorities: options.registry_ca,
        identity: options.registry_cert.zip(options.registry_key),
    };
    config.limits = limits;
    config.webhooks.allow_private = options.webhook_allow_private;
    config.stall = stall;
    config.session_content_bytes = options.session_content_bytes;
    let supervisor = Supervisor::open(config).await?;
    let shutdown = Shutdown::new();
    tokio::spawn(shutdown.clone().on_signal());
    tracing::info!(%address, data = %data_dir.path().display(), "supervisor-svc serves");
    if let Some(path) = options.ready_file {
        let mut said = json!({ "supervisor": address.to_string() });
        if let Some(admin) = &admin {
            said["admin"] = json!(admin.address().to_string());
        }
        paths::write_ready_file(&path, &said)?;
    }
    let serving = supervisor.serve(listener, authenticator, ServeLimits::default(), shutdown);
    Admin::beside(admin, serving).await?;
    if let Some(traces) = traces {
        traces.end().await;
    }
    Ok(())
}
