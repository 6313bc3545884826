//! The service as a program of its own.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Parser;
use svc_kit::{
    admin::Admin,
    listen, paths,
    program::{Program, ServiceOptions},
    serve::Listener,
    shown_token::ShownToken,
    tls::ServerTls,
};
use troupe_client::tls::ClientFiles;

use crate::{Config, Options as ServiceParts, Service, Upstream};

/// The name of the service in the ready file.
const NAME: &str = "a2a";

/// Serves exported roles as agents of the A2A protocol. Needs a supervisor and a registry.
///
/// Example: a2a-svc --a2a-config a2a.yaml --supervisor-token-file operator.token
#[derive(Debug, Parser)]
#[command(name = "a2a-svc", version)]
pub struct Options {
    /// Listen address. Port 0 selects a free port; see --ready-file.
    #[arg(
        long,
        env = "TROUPE_A2A_LISTEN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:50053"
    )]
    a2a_listen: String,
    /// File with the exported roles and the callers
    #[arg(long, env = "TROUPE_A2A_CONFIG", value_name = "FILE")]
    a2a_config: PathBuf,
    /// URL of the supervisor
    #[arg(
        long,
        env = "TROUPE_SUPERVISOR_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:50052"
    )]
    supervisor_url: String,
    /// URL of the registry
    #[arg(
        long,
        env = "TROUPE_REGISTRY_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:50051"
    )]
    registry_url: String,
    /// Operator token file for the supervisor; the first line is sent
    #[arg(long, env = "TROUPE_SUPERVISOR_TOKEN_FILE", value_name = "FILE")]
    supervisor_token_file: Option<PathBuf>,
    /// Token file for the registry; the first line is sent. Without it, the token for the supervisor is sent
    #[arg(long, env = "TROUPE_REGISTRY_TOKEN_FILE", value_name = "FILE")]
    registry_token_file: Option<PathBuf>,
    /// CA certificates for the supervisor and the registry, PEM [default: the public ones]
    #[arg(long, env = "TROUPE_UPSTREAM_CA", value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
    /// Client certificate for the supervisor and the registry, PEM
    #[arg(long, env = "TROUPE_UPSTREAM_CERT", value_name = "FILE", requires = "upstream_key")]
    upstream_cert: Option<PathBuf>,
    /// Private key of the client certificate, PEM
    #[arg(long, env = "TROUPE_UPSTREAM_KEY", value_name = "FILE", requires = "upstream_cert")]
    upstream_key: Option<PathBuf>,
    /// Directory for push notification configurations [default: `troupe/a2a` in the XDG data directory]
    #[arg(long, env = "TROUPE_A2A_DATA_DIR", value_name = "DIR")]
    a2a_data_dir: Option<PathBuf>,
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
/// One sentence about the missing resource.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let service = options.service;
    ensure!(
        service.jwt.jwt_issuer.is_none(),
        "callers of A2A agents have tokens or certificates: remove --jwt-issuer"
    );
    let program = Program::start("a2a-svc", &[], &service.admin).await?;
    let config = Config::load(&options.a2a_config, service.tls.knows_clients())?;
    let push_directory = match options.a2a_data_dir {
        Some(path) => path,
        None => paths::default_data_dir()?.join(NAME),
    };
    let supervisor_token = options.supervisor_token_file.map(ShownToken::load).transpose()?;
    let registry_token = options.registry_token_file.map(ShownToken::load).transpose()?;
    let tls = ClientFiles {
        authorities: options.upstream_ca,
        identity: options.upstream_cert.zip(options.upstream_key),
    };
    let tcp = listen::bind(&options.a2a_listen).await?;
    let address = tcp.local_addr().context("the listener has no address")?;
    config.refuse_open_bind(address, service.insecure)?;
    let server_tls = service.tls.clone().load()?.map(ServerTls::with_http1);
    let a2a = Service::open(ServiceParts {
        config,
        supervisor: Upstream {
            url: options.supervisor_url,
            token: supervisor_token.clone(),
            tls: tls.clone(),
        },
        registry: Upstream {
            url: options.registry_url,
            token: registry_token.or(supervisor_token),
            tls,
        },
        push_directory,
        address,
        is_https: server_tls.is_some(),
    })?;
    tracing::info!(%address, "a2a-svc serves");
    program.ready(&service, NAME, address)?;
    let listener = Listener::new(tcp, server_tls).report_health_to(program.admin().map(Admin::reporter));
    let serving = a2a.serve(listener, service.limits(), program.shutdown());
    let served = program.serve(serving).await;
    program.end().await;
    if let Some(served) = served? {
        served?;
    }
    Ok(())
}
