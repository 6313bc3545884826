//! The host of the service under test.

use std::{path::PathBuf, sync::Arc, time::Duration};

use supervisor_log::store::MemoryStore;
use supervisor_svc::{Config, RegistryClient, Supervisor, Surroundings, WatchLimits, clock::Clock};
use svc_kit::{serve::ServeLimits, shutdown::Shutdown};
use troupe_tests::pair::authenticator;

use crate::{net, shared::REGISTRY};

/// How long a runner is trusted without a word from it.
const LEASE: Duration = Duration::from_millis(1_500);

/// State that survives the machine's death.
#[derive(Clone)]
pub struct Remains {
    pub store: Arc<MemoryStore>,
    pub clock: Clock,
    /// Where the keys lie.
    pub data_dir: PathBuf,
}

/// Serves until the machine dies.
pub async fn run(remains: Remains) -> turmoil::Result {
    let Remains { store, clock, data_dir } = remains;
    let registry = RegistryClient::over(|| net::channel(REGISTRY), String::from(REGISTRY), None, clock.clone());
    let surroundings = Surroundings { store, registry, clock };
    let mut config = Config::new(data_dir, String::new());
    config.lease = LEASE;
    // Short, so that watches end as planned too.
    config.watch = WatchLimits {
        bookmark_every: Duration::from_millis(400),
        lifetime: Duration::from_millis(1_200),
        ..WatchLimits::default()
    };
    let limits = ServeLimits {
        keepalive_interval: net::KEEPALIVE,
        keepalive_timeout: net::KEEPALIVE,
        ..ServeLimits::default()
    };
    let supervisor = Supervisor::over(surroundings, config).await?;
    let incoming = net::accept().await?;
    supervisor
        .serve_over(incoming, authenticator(), limits, Shutdown::new())
        .await?;
    Ok(())
}
