//! The supervisor's lifecycle: opens its store, loads its keys, activates the sessions that have pending work, and
//! serves its RPC services.

use std::{
    fmt::Display,
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::anyhow;
use futures::Stream;
use supervisor_log::store::{DATABASE, EventStore, PostgresStore, ReadError, SqliteStore, TOKEN_KEYS};
use svc_kit::{
    auth::{AuthLayer, Authenticator},
    encoded::MethodOverride,
    secret::SecretToken,
    serve::{self, Listener, ServeError, ServeLimits, Serving},
    shutdown::Shutdown,
    thread_token::{KEYS_FILE, TokenKeys},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    time::interval,
};
use tokio_util::sync::CancellationToken;
use tonic::{service::Routes, transport::server::Connected};
use troupe_client::tls::ClientFiles;
use troupe_proto::{
    MAX_MESSAGE_BYTES,
    cluster::v1::member_service_server::MemberServiceServer,
    supervisor::v1::{
        agent_supervisor_service_server::{AgentSupervisorServiceServer, SERVICE_NAME as AGENTS},
        thread_runner_service_server::{SERVICE_NAME as RUNNERS, ThreadRunnerServiceServer},
    },
};

use crate::{
    backups::{self, Backups},
    clock::Clock,
    cluster::{Cluster, Forwarding, MemberGate, PeerConnector, RunnerRelay},
    config::Config,
    engine::{Directory, EngineConfig, feed::Feed},
    projections::{
        metrics::{self, Metrics},
        notifications::Clients,
        overview::{self, Changes, Overview},
        thread_view::ThreadView,
        watch::{WatchSources, snapshot::Snapshots},
        webhooks::Webhooks,
    },
    registry_client::RegistryClient,
    rpc::{self, AUTHORITY, MAX_READS, SupervisorService, WatchMethod},
    runners::{Dispatcher, OutputBoard, RunnerGate, RunnerHub, Services, TelemetryBoard},
    tool_decisions::ToolDecisions,
    transcripts::Transcripts,
    use_cases::{
        groups::{GroupRunner, GroupServices},
        spawn::Spawner,
    },
};

/// Interval at which expired stored requests are deleted.
const FORGET_EVERY: Duration = Duration::from_secs(60 * 60);

/// Fully qualified names of the served gRPC services, as reported by the health service.
pub const SERVICES: &[&str] = &[AGENTS, RUNNERS];

/// The error that stopped the supervisor.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Serving failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The outcome of a write is unknown. The next start replays the log, which shows the outcome.
    #[error("a write to the log ended without a known outcome; start again to replay the log")]
    OutcomeUnknown,
    /// This supervisor cannot join the cluster.
    #[error("cannot join the supervisors that share the log: {0}")]
    Join(#[from] ReadError),
    /// Another supervisor removed this one from the cluster.
    #[error(
        "another supervisor has removed this one, because it was silent for too long or because another one has the same \
         --member-name; start again"
    )]
    Removed,
}

/// The dependencies of a supervisor.
pub struct Surroundings {
    /// The log.
    pub store: Arc<dyn EventStore>,
    /// The client of the registry.
    pub registry: RegistryClient,
    /// Connects to the other supervisors that share the log.
    pub peers: PeerConnector,
    /// Source of wall-clock time and new ids.
    pub clock: Clock,
}

/// The supervisor, opened and ready to serve.
#[derive(Clone)]
pub struct Supervisor {
    /// The gRPC service for clients. Serving replaces its token `draining`.
    agents: SupervisorService,
    webhooks: Webhooks,
    groups: GroupRunner,
    backups: Option<Backups>,
    /// The URL at which agents' tools reach this service. Set once the service listens.
    public_url: Arc<OnceLock<String>>,
}

/// Returns an error with one sentence as its text, and with the causes of `error` for the service's log.
fn failed(text: String, error: impl std::error::Error + Send + Sync + 'static) -> anyhow::Error {
    anyhow::Error::new(error).context(text)
}

async fn open_store(config: &Config) -> anyhow::Result<Arc<dyn EventStore>> {
    let path = config.data_dir.join(DATABASE);
    if let Some(options) = &config.postgres {
        if path.exists() {
            tracing::warn!(path = %path.display(), "the log in the data directory is not used; --store names another one");
        }
        let store = PostgresStore::open(options.clone()).await;
        let failed = |error| failed(format!("cannot open the log {options}: {error}"), error);
        return Ok(Arc::new(store.map_err(failed)?));
    }
    // The keys are created after the log, so existing keys imply that a log existed.
    let has_keys = config.data_dir.join(KEYS_FILE).exists();
    let store = SqliteStore::open_used(path.clone(), has_keys.then_some(KEYS_FILE)).await;
    let failed = |error| failed(format!("cannot open the log {}: {error}", path.display()), error);
    Ok(Arc::new(store.map_err(failed)?))
}

/// Returns the keys of thread tokens: those in the log if several supervisors can share it, otherwise those in the data
/// directory.
async fn token_keys(store: &dyn EventStore, config: &Config) -> anyhow::Result<TokenKeys> {
    if !store.is_shared() {
        return Ok(TokenKeys::load_or_create(&config.data_dir)?);
    }
    let agreed = store.agree(TOKEN_KEYS, TokenKeys::file(&config.data_dir)?).await;
    let failed = |defect: &dyn Display| anyhow!("the token keys in the log cannot be used: {defect}");
    let agreed = agreed.map_err(|error| failed(&error))?;
    TokenKeys::parse(&agreed).map_err(|defect| failed(&defect))
}

impl Supervisor {
    /// Opens the log and the keys. A passive session is activated on demand, or when it has work to do.
    ///
    /// # Errors
    /// One sentence about the resource that cannot be used: the log, the keys, TLS, or the registry's address.
    pub async fn open(config: Config) -> anyhow::Result<Self> {
        if let Some(settings) = &config.backups {
            backups::before_upgrade(settings, &config.data_dir).await;
        }
        let store = open_store(&config).await?;
        let clock = Clock::system();
        let registry = RegistryClient::new(
            &config.registry_url,
            config.registry_token.clone(),
            &config.registry_tls,
            clock.clone(),
        )
        .map_err(|error| {
            let url = &config.registry_url;
            failed(format!("the registry's address \"{url}\" is not a URL: {error}"), error)
        })?;
        let files = ClientFiles {
            authorities: config.cluster.cluster_ca.clone(),
            identity: None,
        };
        let peers = PeerConnector::new(files, config.cluster.cluster_server_name.clone());
        let surroundings = Surroundings {
            store,
            registry,
            peers,
            clock,
        };
        Self::over(surroundings, config).await
    }

    /// Like [`Self::open`], with dependencies from the caller. Of the data directory, it reads only the keys. The
    /// registry's address and token in `config` are ignored, and so are the authorities of the other supervisors.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn over(surroundings: Surroundings, config: Config) -> anyhow::Result<Self> {
        let Surroundings {
            store,
            registry,
            peers,
            clock,
        } = surroundings;
        let keys = Arc::new(token_keys(store.as_ref(), &config).await?);
        let (telemetry, output) = (TelemetryBoard::default(), OutputBoard::default());
        let (metrics, changes, public_url) = (Arc::new(Metrics::default()), Changes::default(), Arc::default());
        let hub = RunnerHub::new(config.lease);
        let webhooks = Webhooks::new(Arc::clone(&store), config.webhooks, clock.clone())
            .map_err(|error| failed(format!("TLS for webhooks cannot be set up: {error}"), error))?;
        let services = Services {
            store: Arc::clone(&store),
            hub: hub.clone(),
            keys: Arc::clone(&keys),
            telemetry: telemetry.clone(),
            prices: Arc::clone(&config.prices),
            clock: clock.clone(),
            public_url: Arc::clone(&public_url),
        };
        let dispatcher = Dispatcher::new(services, output.clone());
        let groups = GroupRunner::default();
        let feed = Feed::new(
            vec![
                metrics.clone(),
                Arc::new(changes.clone()),
                Arc::new(webhooks.clone()),
                Arc::new(dispatcher),
                Arc::new(groups.clone()),
            ],
            hub.changes(),
        );
        let directory = Directory::new(EngineConfig {
            store: Arc::clone(&store),
            clock: clock.clone(),
            feed,
            summarize: overview::summary,
            upkeep: config.upkeep,
            session_content_bytes: config.session_content_bytes,
            event_rate: config.event_rate,
            prices: Arc::clone(&config.prices),
        });
        let spawner = Spawner::new(directory.clone(), registry.clone(), hub.clone());
        groups.start(GroupServices {
            spawner: spawner.clone(),
            read_arguments: rpc::spawn::arguments,
            store: Arc::clone(&store),
            clock: clock.clone(),
        });
        let data_dir = config.postgres.is_none().then_some(config.data_dir.as_path());
        metrics::observe(&directory, &hub, data_dir);
        let cluster = store.is_shared().then(|| {
            Cluster::new(
                directory.clone(),
                hub.clone(),
                config.cluster.clone(),
                peers,
                &keys.member_token(),
                AUTHORITY,
            )
        });
        let transcripts = Transcripts::new(Arc::clone(&store), config.session_content_bytes);
        let backups = config
            .backups
            .clone()
            .map(|settings| Backups::new(settings, config.data_dir.clone(), clock.clone()));
        let watches = WatchSources {
            store,
            metrics,
            view: ThreadView::new(telemetry.clone(), hub.clone()),
            telemetry,
            output,
            snapshots: Snapshots::default(),
        };
        let agents = SupervisorService {
            overview: Overview::new(directory.clone(), changes, cluster.clone()),
            directory,
            registry,
            runners: hub,
            keys,
            decisions: ToolDecisions::default(),
            watches: Arc::new(watches),
            transcripts,
            cluster,
            clients: Clients::default(),
            spawner,
            reads: Arc::new(Semaphore::new(MAX_READS)),
            config: Arc::new(config),
            draining: CancellationToken::new(),
        };
        Ok(Self {
            agents,
            webhooks,
            groups,
            backups,
            public_url,
        })
    }

    /// Builds the layer that authenticates and authorizes calls, including those of this supervisor's threads.
    fn auth(&self, authenticator: Authenticator) -> AuthLayer {
        let SupervisorService { cluster, keys, .. } = &self.agents;
        let token = cluster.as_ref().and_then(|_| SecretToken::parse(&keys.member_token()));
        let authenticator = match token {
            Some(token) => authenticator.members(token),
            None => authenticator,
        };
        AuthLayer::new(authenticator.threads(Arc::clone(keys)), AUTHORITY)
    }

    /// Returns the number of sessions in memory.
    #[must_use]
    pub fn loaded_sessions(&self) -> usize {
        self.agents.directory.loaded()
    }

    /// Activates sessions that are due and deletes expired requests, until `ended`.
    async fn run_upkeep(&self, ended: CancellationToken) {
        tokio::select! {
            () = self.agents.directory.activate_due_sessions(ended) => {}
            () = self.forget_requests() => {}
        }
    }

    async fn forget_requests(&self) {
        let mut times = interval(FORGET_EVERY);
        loop {
            times.tick().await;
            let directory = &self.agents.directory;
            let store = directory.store();
            while store
                .forget_requests(directory.clock().now())
                .await
                .is_ok_and(|forgotten| forgotten > 0)
            {}
        }
    }

    /// Serves until `shutdown` completes, the outcome of a write is unknown, or another supervisor removes this one
    /// from the cluster. Then closes the store. Sessions with pending work are activated in the background.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn serve(
        self,
        listener: impl Into<Listener>,
        authenticator: Authenticator,
        limits: ServeLimits,
        shutdown: Shutdown,
    ) -> Result<(), RunError> {
        let listener = listener.into();
        let url = listener.url().ok();
        if let Some(url) = &url {
            let _ = self.public_url.set(url.clone());
        }
        if let Some(cluster) = &self.agents.cluster {
            cluster.join(url).await?;
        }
        let auth = self.auth(authenticator);
        let serving = self.serving(&shutdown);
        let served = serve::serve(listener, serving, auth, limits, shutdown.clone());
        self.until_ended(served, shutdown).await
    }

    /// Like [`Self::serve`], over connections that the caller accepts and limits, and without reflection. Agents do
    /// not receive the service's address.
    ///
    /// # Errors
    /// See [`RunError`].
    pub async fn serve_over<C>(
        self,
        incoming: impl Stream<Item = io::Result<C>>,
        authenticator: Authenticator,
        limits: ServeLimits,
        shutdown: Shutdown,
    ) -> Result<(), RunError>
    where
        C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        if let Some(cluster) = &self.agents.cluster {
            cluster.join(None).await?;
        }
        let auth = self.auth(authenticator);
        let Serving { routes, names, .. } = self.serving(&shutdown);
        let served = serve::serve_over(incoming, routes, &names, auth, limits, shutdown.clone());
        self.until_ended(served, shutdown).await
    }

    /// Runs the service and its background tasks until the service ends, then closes the store.
    async fn until_ended(
        self,
        served: impl Future<Output = Result<(), ServeError>>,
        shutdown: Shutdown,
    ) -> Result<(), RunError> {
        let draining = shutdown.draining();
        let stop_backups = draining.child_token();
        let backups = self.backups.clone();
        let stopped = stop_backups.clone();
        let backups = backups.map(|backups| tokio::spawn(backups.run(stopped)));
        let waking = self.clone();
        tokio::spawn(async move { waking.run_upkeep(draining).await });
        let SupervisorService { directory, cluster, .. } = &self.agents;
        if let Some(cluster) = cluster.clone() {
            tokio::spawn(async move {
                shutdown.triggered().await;
                cluster.drain().await;
            });
        }
        let removed = async {
            match cluster {
                Some(cluster) => cluster.beat_until_removed().await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            served = served => {
                directory.store_summaries().await;
                served.map_err(RunError::from)
            }
            () = directory.outcome_unknown() => Err(RunError::OutcomeUnknown),
            () = removed => Err(RunError::Removed),
        };
        self.webhooks.stop();
        self.groups.stop();
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
        directory.store().close().await;
        stop_backups.cancel();
        if let Some(backups) = backups {
            // The task ends after it has removed an unfinished backup. A panic was reported where it happened.
            let _ = backups.await;
        }
        ended
    }

    /// Returns the services, which are served until `shutdown`.
    fn serving(&self, shutdown: &Shutdown) -> Serving {
        let draining = shutdown.draining();
        let agents = SupervisorService {
            draining: draining.clone(),
            ..self.agents.clone()
        };
        let cluster = self.agents.cluster.clone();
        let runners = RunnerGate::new(
            agents.directory.clone(),
            agents.runners.clone(),
            agents.watches.telemetry.clone(),
            agents.watches.output.clone(),
            agents.decisions.clone(),
            agents.transcripts.clone(),
            draining.clone(),
        );
        let agents = Arc::new(agents);
        let agents = MethodOverride::new(
            AgentSupervisorServiceServer::from_arc(Arc::clone(&agents))
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            WatchMethod(agents),
        );
        let mut routes = Routes::new(Forwarding::new(agents.clone(), cluster.clone())).add_service(
            ThreadRunnerServiceServer::new(RunnerRelay::new(runners, cluster.clone()))
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
        );
        if let Some(cluster) = cluster {
            let members = MemberGate::new(agents, cluster, draining);
            routes = routes.add_service(MemberServiceServer::new(members));
        }
        Serving::new(routes, SERVICES.to_vec())
    }
}
