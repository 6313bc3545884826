//! The state of the gRPC service: its dependencies and configuration.

use std::{sync::Arc, time::Duration};

use svc_kit::thread_token::TokenKeys;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    cluster::Cluster,
    domain::settings::{Limits, StallRule},
    engine::Directory,
    projections::{
        notifications::Clients,
        overview::Overview,
        thread_view::ThreadView,
        watch::{WatchLimits, WatchSources},
    },
    registry_client::RegistryClient,
    runners::RunnerHub,
    tool_decisions::ToolDecisions,
    transcripts::Transcripts,
    use_cases::spawn::Spawner,
};

/// Maximum number of contents in memory for readers.
pub(crate) const MAX_READS: usize = 64;

/// Times of WaitAgents.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimits {
    /// Used if the request specifies no time.
    pub default: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for WaitLimits {
    fn default() -> Self {
        Self {
            default: Duration::from_secs(5 * 60),
            max: Duration::from_secs(30 * 60),
        }
    }
}

/// Startup configuration of the service.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Defaults and maxima of sessions' limits.
    pub limits: Limits,
    /// The stall rule for threads of new sessions.
    pub stall: StallRule,
    /// Times of WaitAgents.
    pub wait: WaitLimits,
    /// Times of watches.
    pub watch: WatchLimits,
    /// Whether webhooks may lead to private, loopback and link-local addresses.
    pub allow_private_webhooks: bool,
    /// Maximum number of items of a group.
    pub max_group_items: u32,
}

/// The parts of the process that the service calls.
pub struct ServiceParts {
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
}

/// The service.
#[derive(Clone)]
pub struct SupervisorService {
    pub(super) directory: Directory,
    pub(super) registry: RegistryClient,
    pub(super) runners: RunnerHub,
    pub(super) keys: Arc<TokenKeys>,
    pub(super) decisions: ToolDecisions,
    pub(super) overview: Overview,
    pub(super) view: ThreadView,
    pub(super) watches: Arc<WatchSources>,
    pub(super) transcripts: Transcripts,
    pub(super) cluster: Option<Cluster>,
    pub(super) clients: Clients,
    pub(super) spawner: Spawner,
    /// Room for contents that are being read.
    pub(super) reads: Arc<Semaphore>,
    pub(super) config: ServiceConfig,
    pub(super) draining: CancellationToken,
}

impl SupervisorService {
    /// The service over these sessions.
    #[must_use]
    pub fn new(parts: ServiceParts, config: ServiceConfig, draining: CancellationToken) -> Self {
        Self {
            reads: Arc::new(Semaphore::new(MAX_READS)),
            spawner: Spawner::new(parts.directory.clone(), parts.registry.clone(), parts.runners.clone()),
            directory: parts.directory,
            registry: parts.registry,
            runners: parts.runners,
            keys: parts.keys,
            decisions: parts.decisions,
            overview: parts.overview,
            view: parts.watches.view.clone(),
            watches: parts.watches,
            transcripts: parts.transcripts,
            cluster: parts.cluster,
            clients: Clients::default(),
            config,
            draining,
        }
    }

    /// Returns the source of wall-clock time and new ids.
    pub(super) fn clock(&self) -> &Clock {
        self.directory.clock()
    }
}
