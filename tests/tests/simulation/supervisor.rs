//! The host of the service under test.

use std::{path::PathBuf, sync::Arc, time::Duration};

use supervisor_log::store::EventStore;
use supervisor_svc::{
    ClusterOptions, Config, PeerConnector, RegistryClient, Supervisor, Surroundings, WatchLimits, clock::Clock,
};
use svc_kit::{serve::ServeLimits, shutdown::Shutdown};
use troupe_tests::pair::authenticator;

use crate::{net, shared::REGISTRY};

/// State that survives the machine's death.
#[derive(Clone)]
pub struct Remains {
    pub store: Arc<dyn EventStore>,
    pub clock: Clock,
    /// The directory of the keys.
    pub data_dir: PathBuf,
    /// Duration of a runner's lease.
    pub lease: Duration,
    pub cluster: ClusterOptions,
}

/// Serves until the machine dies or `shutdown` is complete.
pub async fn run(remains: Remains, shutdown: Shutdown) -> turmoil::Result {
    let Remains {
        store,
        clock,
        data_dir,
        lease,
        cluster,
    } = remains;
    let registry = RegistryClient::over(|| net::channel(REGISTRY), String::from(REGISTRY), None, clock.clone());
    let surroundings = Surroundings {
        store,
        registry,
        peers: PeerConnector::over(|address| Some(net::channel(net::host_of(address)?))),
        clock,
    };
    let mut config = Config::new(data_dir, String::new());
    config.lease = lease;
    config.cluster = cluster;
    // Short, so that watches also reach their maximum lifetime.
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
        .serve_over(incoming, authenticator(), limits, shutdown)
        .await?;
    Ok(())
}
