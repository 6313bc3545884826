//! The state of the gRPC service: its dependencies and configuration.

use std::sync::Arc;

use svc_kit::thread_token::TokenKeys;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    cluster::Cluster,
    config::Config,
    engine::Directory,
    projections::{notifications::Clients, overview::Overview, watch::WatchSources},
    registry_client::RegistryClient,
    runners::RunnerHub,
    tool_decisions::ToolDecisions,
    transcripts::Transcripts,
    use_cases::spawn::Spawner,
};

/// Maximum number of contents that are read concurrently.
pub(crate) const MAX_READS: usize = 64;

/// The service.
#[derive(Clone)]
pub struct SupervisorService {
    /// The sessions.
    pub directory: Directory,
    /// The registry.
    pub registry: RegistryClient,
    /// The runners.
    pub runners: RunnerHub,
    /// Mints and verifies the threads' tokens.
    pub keys: Arc<TokenKeys>,
    /// Decides tool calls.
    pub decisions: ToolDecisions,
    /// The listing of all sessions.
    pub overview: Overview,
    /// The sources of watches.
    pub watches: Arc<WatchSources>,
    /// The transcripts.
    pub transcripts: Transcripts,
    /// The cluster, if the log can be shared.
    pub cluster: Option<Cluster>,
    /// The clients that receive notifications.
    pub clients: Clients,
    /// Spawns threads.
    pub spawner: Spawner,
    /// Permits for contents that are being read, see [`MAX_READS`].
    pub reads: Arc<Semaphore>,
    /// The configuration of the supervisor.
    pub config: Arc<Config>,
    /// Cancelled when the service drains.
    pub draining: CancellationToken,
}

impl SupervisorService {
    /// Returns the source of wall-clock time and new ids.
    pub(super) fn clock(&self) -> &Clock {
        self.directory.clock()
    }
}
