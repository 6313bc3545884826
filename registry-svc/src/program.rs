//! The registry's program.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context as _;
use clap::Parser;
use svc_kit::{
    admin::Admin,
    auth::{Authenticator, Trust},
    identity::OperatorRole,
    jwt::Jwt,
    jwt_roles::Machine,
    listen,
    program::{Program, ServiceOptions},
    serve::Listener,
    token_file::{TokenFile, Tokens},
};
use troupe_client::host::is_loopback;

use crate::{CatalogueOptions, Registry, SERVICES};

/// Serve role templates: discover and list them, and resolve the configuration of a spawn.
///
/// Example: registry-svc --workspace-root ~/projects
#[derive(Debug, Parser)]
#[command(name = "registry-svc", version)]
pub struct Options {
    /// Listen address. Port 0 selects a free port; see --ready-file.
    #[arg(
        long,
        env = "TROUPE_REGISTRY_LISTEN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:50051"
    )]
    registry_listen: String,
    /// The flags for templates.
    #[command(flatten)]
    catalogue: CatalogueOptions,
    /// Token file with one token per line; callers must present one of them. Without it, calls from this machine are
    /// trusted.
    #[arg(long, env = "TROUPE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The flags of all services.
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
/// A single sentence that names the missing resource.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let service = options.service;
    let program = Program::start("registry-svc", SERVICES, &service.admin).await?;
    let listener = listen::bind(&options.registry_listen).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let tokens = options.token_file.map(TokenFile::load).transpose()?;
    let jwt = Jwt::load(service.jwt.clone(), Machine::Service)?;
    let knows_callers = tokens.is_some() || jwt.is_some() || service.tls.knows_clients();
    listen::refuse_open_bind(address, knows_callers, service.insecure)?;
    let listener = Listener::new(listener, service.tls.clone().load()?)
        .report_health_to(program.admin().map(Admin::reporter))
        .reflects(!service.no_reflection);
    let authenticator = authenticator(tokens, jwt, Trust::of(knows_callers, service.insecure));
    let config = options.catalogue.config(is_loopback(address.ip()))?;
    let opening = tokio::task::spawn_blocking(move || Registry::open(config));
    let Some(registry) = program.open(opening).await else {
        program.end().await;
        return Ok(());
    };
    let registry = registry??;
    tracing::info!(%address, "registry-svc serves");
    program.ready(&service, "registry", address)?;
    let serving = registry.serve(listener, authenticator, service.limits(), program.shutdown());
    let served = program.serve(Box::pin(serving)).await;
    program.end().await;
    if let Some(served) = served? {
        served?;
    }
    Ok(())
}

fn authenticator(tokens: Option<Tokens>, jwt: Option<Arc<Jwt>>, trust: Trust) -> Authenticator {
    let known = Authenticator::new().jwt(jwt).trust(trust);
    match tokens {
        // Operators and the supervisor share the tokens; both may read everything.
        Some(tokens) => known.operator("token", OperatorRole::Admin, tokens),
        None => known,
    }
}
