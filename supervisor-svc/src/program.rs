//! The supervisor as a separate program. It runs no agents: runners attach to it.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use svc_kit::{
    admin::Admin,
    auth::{Authenticator, Trust},
    identity::OperatorRole,
    jwt::Jwt,
    jwt_roles::Machine,
    listen,
    paths::{self, DataDir},
    program::{Program, ServiceOptions},
    serve::Listener,
    shown_token::ShownToken,
    token_file::TokenFile,
};
use troupe_client::tls::ClientFiles;

use crate::{BackupOptions, ClusterOptions, Config, SERVICES, SessionOptions, StoreOptions, Supervisor};

/// Owns the tree of agent threads. Needs a registry; runners attach to it with the token in `runner.token`.
///
/// Example: supervisor-svc --registry-url http://127.0.0.1:50051 --data-dir ./data
#[derive(Debug, Parser)]
#[command(name = "supervisor-svc", version)]
pub struct Options {
    /// Listen address. Port 0 selects a free port; see --ready-file.
    #[arg(
        long,
        env = "TROUPE_SUPERVISOR_LISTEN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:50052"
    )]
    supervisor_listen: String,
    /// URL of the registry. If the host has several addresses, each is a registry
    #[arg(
        long,
        env = "TROUPE_REGISTRY_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:50051"
    )]
    registry_url: String,
    /// Token file for the registry; the first line is sent
    #[arg(long, env = "TROUPE_REGISTRY_TOKEN_FILE", value_name = "FILE")]
    registry_token_file: Option<PathBuf>,
    /// File with operator tokens, one per line [default: `operator.token` in the data directory, created at the first
    /// start]
    #[arg(long, env = "TROUPE_OPERATOR_TOKEN_FILE", value_name = "FILE")]
    operator_token_file: Option<PathBuf>,
    /// File with runner tokens, one per line [default: `runner.token` in the data directory, created at the first
    /// start]
    #[arg(long, env = "TROUPE_RUNNER_TOKEN_FILE", value_name = "FILE")]
    runner_token_file: Option<PathBuf>,
    /// Directory for sessions and tokens [default: `troupe` in the XDG data directory]
    #[arg(long, env = "TROUPE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The store of the log.
    #[command(flatten)]
    store: StoreOptions,
    /// The other supervisors that use the same database.
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Limits of sessions.
    #[command(flatten)]
    sessions: SessionOptions,
    /// Scheduled backups.
    #[command(flatten)]
    backups: BackupOptions,
    /// Require a token on loopback too, as with --tls-client-ca. Without this flag, local calls without a token have
    /// operator permissions, which is safe only if no agents run on this machine
    #[arg(long, env = "TROUPE_REQUIRE_TOKEN")]
    require_token: bool,
    /// CA certificates for the registry, PEM [default: the public ones]
    #[arg(long, env = "TROUPE_REGISTRY_CA", value_name = "FILE")]
    registry_ca: Option<PathBuf>,
    /// Client certificate for the registry, PEM, in addition to a token or instead of it
    #[arg(long, env = "TROUPE_REGISTRY_CERT", value_name = "FILE", requires = "registry_key")]
    registry_cert: Option<PathBuf>,
    /// Private key of the client certificate, PEM
    #[arg(long, env = "TROUPE_REGISTRY_KEY", value_name = "FILE", requires = "registry_cert")]
    registry_key: Option<PathBuf>,
    /// Options of every service.
    #[command(flatten)]
    service: ServiceOptions,
}

impl AsRef<ServiceOptions> for Options {
    fn as_ref(&self) -> &ServiceOptions {
        &self.service
    }
}

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
///
/// A sentence that names the missing resource.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let service = options.service;
    let program = Program::start("supervisor-svc", SERVICES, &service.admin).await?;
    let postgres = options.store.postgres(options.backups.backup_dir.is_some())?;
    let data_dir = match options.data_dir {
        Some(path) => path,
        None => paths::default_data_dir()?,
    };
    let data_dir = DataDir::open(&data_dir)?;
    let tokens = |given: Option<PathBuf>, name: &str| match given {
        Some(path) => TokenFile::load(path),
        None => TokenFile::load_or_create(data_dir.join(name)),
    };
    let operator = tokens(options.operator_token_file, "operator.token")?;
    let runner = tokens(options.runner_token_file, "runner.token")?;
    let registry_token = options.registry_token_file.map(ShownToken::load).transpose()?;

    let listener = listen::bind(&options.supervisor_listen).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    listen::refuse_open_bind(address, true, service.insecure)?;
    let knows_clients = service.tls.knows_clients();
    let listener = Listener::new(listener, service.tls.clone().load()?)
        .report_health_to(program.admin().map(Admin::reporter))
        .reflects(!service.no_reflection);
    let jwt = Jwt::load(service.jwt.clone(), Machine::Runner)?;
    let trust = trust(options.require_token || knows_clients, jwt.is_some(), service.insecure);
    let authenticator = Authenticator::new()
        .operator("local", OperatorRole::Admin, operator)
        .runner("local", runner)
        .jwt(jwt)
        .trust(trust);

    let mut config = Config::new(data_dir.path().to_owned(), options.registry_url);
    config.registry_token = registry_token;
    options.cluster.check(postgres.is_some())?;
    config.cluster = options.cluster;
    config.postgres = postgres;
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
    options.sessions.apply(&mut config).map_err(anyhow::Error::msg)?;
    config.backups = options.backups.settings(data_dir.path())?;
    let Some(supervisor) = program.open(Supervisor::open(config)).await else {
        program.end().await;
        return Ok(());
    };
    let supervisor = supervisor?;
    tracing::info!(%address, data = %data_dir.path().display(), "supervisor-svc serves");
    program.ready(&service, "supervisor", address)?;
    let serving = supervisor.serve(listener, authenticator, service.limits(), program.shutdown());
    let served = program.serve(Box::pin(serving)).await;
    program.end().await;
    if let Some(served) = served? {
        served?;
    }
    Ok(())
}

/// Returns the callers that the service trusts without a token. If an identity provider knows the operators,
/// `--insecure` has no effect. Calls from this machine are trusted unless a token is required.
const fn trust(asks: bool, has_provider: bool, insecure: bool) -> Trust {
    Trust::of(asks, insecure && !has_provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_provider_overrides_insecure() {
        assert_eq!(trust(false, false, true), Trust::Everybody);
        assert_eq!(trust(false, true, true), Trust::Loopback);
        assert_eq!(trust(true, true, true), Trust::Nobody);
        assert_eq!(trust(true, false, true), Trust::Nobody);
    }
}
