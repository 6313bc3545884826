//! The pair in one process: registry, supervisor and, unless told otherwise, a runner. The only module that knows how
//! services are put together; `up` and `demo` see addresses, a token and an end.

use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use svc_kit::{
    admin::{Admin, AdminOptions},
    auth::{Authenticator, Trust},
    identity::OperatorRole,
    listen,
    paths::DataDir,
    secret::SecretToken,
    serve::{Listener, ServeLimits},
    shutdown::Shutdown,
    telemetry::{self, LogFormat},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use troupe_runner::{RunnerConfig, WorktreeCleanup};

use crate::{
    error::{Error, Result},
    programs,
    token::{self, Token},
};

/// What `RUST_LOG` is to others.
const LOG_VARIABLE: &str = "TROUPE_LOG";

/// What a pair is started with.
#[derive(Clone, Debug)]
pub(crate) struct PairOptions {
    /// Where the registry listens.
    pub(crate) registry_listen: String,
    /// Where the supervisor listens.
    pub(crate) supervisor_listen: String,
    /// Where health and metrics are served besides.
    pub(crate) admin_listen: Option<String>,
    /// Where sessions and tokens are kept.
    pub(crate) data_dir: PathBuf,
    /// Where `.codex/` of the user scope lies.
    pub(crate) home: PathBuf,
    /// Which directories projects may lie in; empty: `home`, on loopback only.
    pub(crate) workspace_roots: Vec<PathBuf>,
    /// Which other programs' agents are read too.
    pub(crate) import: Vec<registry_svc::ForeignFormat>,
    /// The catalogue of models.
    pub(crate) models: Option<PathBuf>,
    /// What templates may say.
    pub(crate) templates: registry_svc::TemplateOptions,
    /// Defaults and maxima for sessions.
    pub(crate) limits: supervisor_svc::domain::settings::Limits,
    /// When threads of new sessions count as stalled.
    pub(crate) stall: supervisor_svc::domain::settings::StallRule,
    /// How many bytes of content a session may hold.
    pub(crate) session_content_bytes: u64,
    /// Whether webhooks may lead to private, loopback and link-local addresses.
    pub(crate) webhook_allow_private: bool,
    /// Whether the user's templates are seeded.
    pub(crate) seed: bool,
    /// How the runner that is attached executes threads; `None`: none is attached.
    pub(crate) runner: Option<RunnerOptions>,
    /// Whether calls from this machine without a token are an operator's.
    pub(crate) trust_loopback: bool,
    /// Whether to listen off loopback without authentication.
    pub(crate) insecure: bool,
}

/// How the runner of a pair executes threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunnerOptions {
    /// With what.
    pub(crate) programs: programs::Choice,
    /// Whether in worktrees, and when they go.
    pub(crate) worktrees: Option<WorktreeCleanup>,
}

/// A running pair.
pub(crate) struct Pair {
    registry: SocketAddr,
    supervisor: SocketAddr,
    data_dir: DataDir,
    token: Token,
    token_file: Option<PathBuf>,
    shutdown: Shutdown,
    /// The runner outlives the services' drain, so that what its programs report last still arrives.
    runner_stop: CancellationToken,
    services: JoinSet<Result<()>>,
    runner: JoinSet<Result<()>>,
    admin: Option<SocketAddr>,
    /// The admin port outlives everything else, so that all of it is seen to end.
    admin_stop: CancellationToken,
    admin_port: JoinSet<Result<()>>,
}

/// The tokens of one pair.
struct Secrets {
    operator: Option<SecretToken>,
    runner: SecretToken,
    service: SecretToken,
}

impl Secrets {
    fn load(options: &PairOptions, directory: &Path) -> Result<Self> {
        let needs_operator = options.runner.is_some() && !options.trust_loopback;
        let operator = needs_operator.then(|| SecretToken::load_or_create(&directory.join(token::FILE)));
        Ok(Self {
            operator: operator.transpose().map_err(failure)?,
            runner: SecretToken::generate().map_err(failure)?,
            service: SecretToken::generate().map_err(failure)?,
        })
    }

    fn trust(&self, insecure: bool) -> Trust {
        match (&self.operator, insecure) {
            (Some(_), _) => Trust::Nobody,
            (None, true) => Trust::Everybody,
            (None, false) => Trust::Loopback,
        }
    }

    fn authenticator(&self, insecure: bool) -> Authenticator {
        let base = Authenticator::new()
            .trust(self.trust(insecure))
            .runner("local", self.runner.clone())
            .service("supervisor", self.service.clone());
        match &self.operator {
            Some(operator) => base.operator("local", OperatorRole::Admin, operator.clone()),
            None => base,
        }
    }
}

impl Pair {
    /// Starts everything, and returns once both services serve.
    ///
    /// # Errors
    ///
    /// One sentence about what cannot be had: the data directory, an address, a file.
    pub(crate) async fn start(options: PairOptions) -> Result<Self> {
        let data_dir = DataDir::open(&options.data_dir).map_err(failure)?;
        let registry_listener = listen::bind(&options.registry_listen).await.map_err(failure)?;
        let supervisor_listener = listen::bind(&options.supervisor_listen).await.map_err(failure)?;
        let (registry, supervisor) = (registry_listener.local_addr()?, supervisor_listener.local_addr()?);
        let secrets = Secrets::load(&options, data_dir.path())?;
        for address in [registry, supervisor] {
            listen::refuse_open_bind(address, secrets.operator.is_some(), options.insecure).map_err(failure)?;
        }
        let roots = workspace_roots(&options, &[registry, supervisor])?;
        let admin = AdminOptions {
            admin_listen: options.admin_listen.clone(),
        };
        let admin = Admin::open(admin, "troupe").await.map_err(failure)?;

        let shutdown = Shutdown::new();
        let mut services = JoinSet::new();
        let listener = |tcp| Listener::from(tcp).tells(admin.as_ref());
        serve_registry(
            &mut services,
            listener(registry_listener),
            &options,
            roots,
            &secrets,
            shutdown.for_service(),
        )?;
        let own = shutdown.for_service();
        serve_supervisor(
            &mut services,
            listener(supervisor_listener),
            &options,
            registry,
            &secrets,
            own,
        )
        .await?;
        let runner_stop = CancellationToken::new();
        let mut runner = JoinSet::new();
        if let Some(own) = &options.runner {
            let config = runner_config(supervisor, own, data_dir.path(), &secrets)?;
            let run = troupe_runner::run(config, runner_stop.clone());
            runner.spawn(async move { run.await.map_err(failure) });
        }
        let (admin_stop, mut admin_port) = (CancellationToken::new(), JoinSet::new());
        let admin_address = admin.as_ref().map(Admin::address);
        if let Some(admin) = admin {
            let serving = admin.serve(admin_stop.clone());
            admin_port.spawn(async move {
                serving.await;
                Ok(())
            });
        }
        let token_file = secrets.operator.is_some().then(|| data_dir.path().join(token::FILE));
        let token = secrets
            .operator
            .as_ref()
            .map_or_else(Token::none, |operator| Token::given(operator.expose()));
        Ok(Self {
            registry,
            supervisor,
            data_dir,
            token,
            token_file,
            shutdown,
            runner_stop,
            services,
            runner,
            admin: admin_address,
            admin_stop,
            admin_port,
        })
    }

    /// Where the registry serves.
    pub(crate) const fn registry(&self) -> SocketAddr {
        self.registry
    }

    /// Where the supervisor serves.
    pub(crate) const fn supervisor(&self) -> SocketAddr {
        self.supervisor
    }

    /// Where health and metrics are served, if they are.
    pub(crate) const fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Where its data is.
    pub(crate) fn data_dir(&self) -> &Path {
        self.data_dir.path()
    }

    /// What an operator calls with; none where this machine is trusted.
    pub(crate) const fn token(&self) -> &Token {
        &self.token
    }

    /// The file that holds it.
    pub(crate) fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// Waits until a part of the pair ends by itself, which none should.
    pub(crate) async fn failed(&mut self) -> Error {
        let ended = tokio::select! {
            Some(ended) = self.services.join_next() => ended,
            Some(ended) = self.runner.join_next() => ended,
            Some(ended) = self.admin_port.join_next() => ended,
        };
        match ended {
            Ok(Ok(())) => Error::failure("a part of the pair ended by itself; its log says why"),
            Ok(Err(error)) => error,
            Err(error) => Error::failure(format!("a part of the pair broke: {error}")),
        }
    }

    /// Drains both services, then stops the runner. Threads are not closed by it.
    ///
    /// # Errors
    ///
    /// The first error of a part.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.shutdown.trigger();
        let services = all(&mut self.services).await;
        self.runner_stop.cancel();
        let runner = all(&mut self.runner).await;
        self.admin_stop.cancel();
        let admin_port = all(&mut self.admin_port).await;
        services.and(runner).and(admin_port)
    }
}

async fn all(tasks: &mut JoinSet<Result<()>>) -> Result<()> {
    let mut first = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let ended = ended.unwrap_or_else(|error| Err(Error::failure(format!("a part of the pair broke: {error}"))));
        first = first.and(ended);
    }
    first
}

fn serve_registry(
    services: &mut JoinSet<Result<()>>,
    listener: Listener,
    options: &PairOptions,
    workspace_roots: Vec<PathBuf>,
    secrets: &Secrets,
    shutdown: Shutdown,
) -> Result<()> {
    let registry = registry_svc::Registry::open(registry_svc::Config {
        home: Some(options.home.clone()),
        workspace_roots,
        seed: options.seed,
        models: options.models.clone(),
        import: options.import.clone(),
        project_templates: options.templates.project_templates(),
        allowed_endpoints: options.templates.allowed_endpoints.clone(),
        auto_route: options.templates.auto_route,
        ..registry_svc::Config::default()
    })
    .map_err(failure)?;
    let serving = registry.serve(
        listener,
        secrets.authenticator(options.insecure),
        ServeLimits::default(),
        shutdown,
    );
    services.spawn(async move { serving.await.map_err(failure) });
    Ok(())
}

async fn serve_supervisor(
    services: &mut JoinSet<Result<()>>,
    listener: Listener,
    options: &PairOptions,
    registry: SocketAddr,
    secrets: &Secrets,
    shutdown: Shutdown,
) -> Result<()> {
    let mut config = supervisor_svc::Config::new(options.data_dir.clone(), listen::url_of(registry));
    config.registry_token = Some(secrets.service.clone());
    config.limits = options.limits;
    config.stall = options.stall;
    config.session_content_bytes = options.session_content_bytes;
    config.webhooks.allow_private = options.webhook_allow_private;
    let supervisor = supervisor_svc::Supervisor::open(config).await.map_err(failure)?;
    let serving = supervisor.serve(
        listener,
        secrets.authenticator(options.insecure),
        ServeLimits::default(),
        shutdown,
    );
    services.spawn(async move { serving.await.map_err(failure) });
    Ok(())
}

fn runner_config(
    supervisor: SocketAddr,
    options: &RunnerOptions,
    data_dir: &Path,
    secrets: &Secrets,
) -> Result<RunnerConfig> {
    let mut config = RunnerConfig::new(
        "local",
        listen::url_of(supervisor),
        options.programs.programs()?,
        data_dir.join("scratch"),
    );
    config.state = programs::state_in(data_dir);
    config.worktrees = options.worktrees;
    config.hidden = vec![data_dir.to_owned()];
    config.hook = programs::hook()?;
    config.token = Some(secrets.runner.expose().to_owned());
    // The supervisor ends first: by then there is nobody to tell how a turn went.
    config.timing.drain_limit = Duration::ZERO;
    Ok(config)
}

/// Starts logging to standard error, at this level unless `TROUPE_LOG` says otherwise.
pub(crate) fn init_logging(level: &str) -> Result<()> {
    let filter = env::var(LOG_VARIABLE).unwrap_or_else(|_| level.to_owned());
    telemetry::init_logging(LogFormat::Text, &filter).map_err(|error| Error::usage(error.to_string()))
}

/// Where projects may lie: as told, else the home, but only for services that nobody else reaches.
fn workspace_roots(options: &PairOptions, addresses: &[SocketAddr]) -> Result<Vec<PathBuf>> {
    if !options.workspace_roots.is_empty() {
        return Ok(options.workspace_roots.clone());
    }
    if addresses.iter().all(|address| listen::is_loopback(address.ip())) {
        return Ok(vec![options.home.clone()]);
    }
    Err(
        Error::usage("off loopback the directories that projects may lie in must be named")
            .hint("pass --workspace-root DIR for each, or set TROUPE_WORKSPACE_ROOTS"),
    )
}

// By value, to be named in `map_err`.
#[allow(clippy::needless_pass_by_value)]
fn failure(error: impl ToString) -> Error {
    Error::failure(error.to_string())
}
