//! A registry, a supervisor and by default a runner in one process. Only this module knows how the services are
//! assembled; `up` and `demo` use the addresses, the token and the shutdown.

use std::{
    fmt::Display,
    future::pending,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use registry_svc::CatalogueOptions;
use supervisor_log::store::PostgresOptions;
use supervisor_svc::{BackupSettings, SessionOptions};
use svc_kit::{
    admin::{Admin, AdminOptions},
    auth::{Authenticator, Trust},
    identity::OperatorRole,
    listen,
    logging::{self, LogOptions},
    paths::DataDir,
    program,
    secret::SecretToken,
    serve::{Listener, ServeLimits},
    shutdown::{SERVICE_ENDS_WITHIN, Shutdown},
    telemetry::Telemetry,
    token_file::{TokenFile, Tokens},
};
use tokio::{task::JoinSet, time::timeout_at};
use tokio_util::sync::CancellationToken;
use troupe_client::{data_dir::OPERATOR_TOKEN, host::is_loopback, token::Token};
use troupe_runner::{Ended, RunnerConfig, WorktreeCleanup};

use crate::{
    error::{Error, Result},
    global::{Global, TlsArgs},
    programs,
};

/// Time for running turns to finish when the pair stops. Afterwards they are interrupted.
pub(crate) const TURNS_END_WITHIN: Duration = Duration::from_secs(3);

/// The configuration of a pair.
#[derive(Clone, Debug)]
pub(crate) struct PairOptions {
    /// The registry's listen address.
    pub(crate) registry_listen: String,
    /// The supervisor's listen address.
    pub(crate) supervisor_listen: String,
    /// The admin port for health and metrics.
    pub(crate) admin: AdminOptions,
    /// The directory of sessions and tokens.
    pub(crate) data_dir: PathBuf,
    /// The locations of templates and their limits.
    pub(crate) catalogue: CatalogueOptions,
    /// Session limits and defaults. `None` uses those of the supervisor.
    pub(crate) sessions: Option<SessionOptions>,
    /// The database of the log. `None`: a file in the data directory.
    pub(crate) postgres: Option<PostgresOptions>,
    /// Scheduled backups. `None` makes no backups.
    pub(crate) backups: Option<BackupSettings>,
    /// The configuration of the attached runner. `None` without a runner.
    pub(crate) runner: Option<RunnerOptions>,
    /// Whether calls from this machine without a token have operator permissions.
    pub(crate) trust_loopback: bool,
    /// Whether the services may listen on non-loopback addresses without authentication.
    pub(crate) insecure: bool,
}

impl PairOptions {
    /// Returns the configuration of a pair in a temporary directory. The directory contains a `home` and all other
    /// directories that agents can access.
    pub(crate) fn temporary(directory: &Path, runner: RunnerOptions) -> Self {
        Self {
            registry_listen: "127.0.0.1:0".to_owned(),
            supervisor_listen: "127.0.0.1:0".to_owned(),
            admin: AdminOptions::default(),
            data_dir: directory.join("data"),
            catalogue: CatalogueOptions {
                home: Some(directory.join("home")),
                workspace_roots: vec![directory.to_owned()],
                ..CatalogueOptions::default()
            },
            sessions: None,
            postgres: None,
            backups: None,
            runner: Some(runner),
            trust_loopback: false,
            insecure: false,
        }
    }
}

/// The configuration of a pair's runner.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunnerOptions {
    /// The agent programs.
    pub(crate) programs: programs::Choice,
    /// When worktrees are removed. `None` without worktrees.
    pub(crate) worktrees: Option<WorktreeCleanup>,
    /// The only program to use. `None` for all programs.
    pub(crate) only: Option<String>,
}

/// A running pair.
pub(crate) struct Pair {
    registry: SocketAddr,
    supervisor: SocketAddr,
    data_dir: DataDir,
    token: Token,
    token_file: Option<PathBuf>,
    shutdown: Shutdown,
    /// Stops the runner before the services, so that the services record how the turns of the runner ended.
    runner_stop: CancellationToken,
    services: JoinSet<Result<()>>,
    runner: JoinSet<Result<Ended>>,
    telemetry: Telemetry,
    /// The admin port opens before all other parts and closes after them, so that it covers startup and shutdown.
    admin: Option<Admin>,
}

/// The tokens of one pair.
struct Secrets {
    /// Whether a caller from this machine needs a token.
    requires_token: bool,
    /// The tokens in the data directory. They are valid even if no token is required, because a client that finds the
    /// file sends its token.
    operator: Option<Tokens>,
    runner: SecretToken,
    service: SecretToken,
}

impl Secrets {
    fn load(options: &PairOptions, directory: &Path) -> Result<Self> {
        let requires_token = options.runner.is_some() && !options.trust_loopback;
        let path = directory.join(OPERATOR_TOKEN);
        let operator = if requires_token {
            Some(TokenFile::load_or_create(path))
        } else {
            path.exists().then(|| TokenFile::load(path))
        };
        Ok(Self {
            requires_token,
            operator: operator.transpose().map_err(Error::of)?,
            runner: SecretToken::generate().map_err(Error::of)?,
            service: SecretToken::generate().map_err(Error::of)?,
        })
    }

    fn authenticator(&self, insecure: bool) -> Authenticator {
        let base = Authenticator::new()
            .trust(Trust::of(self.requires_token, insecure))
            .runner("local", self.runner.clone())
            .service("supervisor", self.service.clone());
        match &self.operator {
            Some(operator) => base.operator("local", OperatorRole::Admin, operator.clone()),
            None => base,
        }
    }
}

impl Pair {
    /// Starts all parts. Returns once both services accept calls.
    ///
    /// # Errors
    ///
    /// Returns a one-sentence error about the unavailable resource: the data directory, an address or a file.
    pub(crate) async fn start(options: PairOptions) -> Result<Self> {
        let data_dir = DataDir::open(&options.data_dir).map_err(Error::of)?;
        let registry_listener = listen::bind(&options.registry_listen).await.map_err(Error::of)?;
        let supervisor_listener = listen::bind(&options.supervisor_listen).await.map_err(Error::of)?;
        let (registry, supervisor) = (registry_listener.local_addr()?, supervisor_listener.local_addr()?);
        let secrets = Secrets::load(&options, data_dir.path())?;
        for address in [registry, supervisor] {
            listen::refuse_open_bind(address, secrets.requires_token, options.insecure).map_err(Error::of)?;
        }
        let is_on_loopback = [registry, supervisor].iter().all(|address| is_loopback(address.ip()));
        let mut catalogue = options.catalogue.config(is_on_loopback).map_err(usage)?;
        let hidden: Vec<_> = [data_dir.path().to_owned()]
            .into_iter()
            .chain(options.backups.as_ref().map(|backups| backups.directory.clone()))
            .collect();
        catalogue.hidden.extend(hidden.clone());
        let telemetry = Telemetry::start("troupe", options.admin.admin_listen.is_some()).map_err(usage)?;
        let names = [registry_svc::SERVICES, supervisor_svc::SERVICES].concat();
        let admin = Admin::start(&options.admin, &telemetry, &names)
            .await
            .map_err(Error::of)?;

        let mut supervision = supervisor_svc::Config::new(options.data_dir, listen::url_of(registry));
        supervision.registry_token = Some(secrets.service.clone().into());
        if let Some(sessions) = options.sessions {
            sessions.apply(&mut supervision).map_err(usage)?;
        }
        supervision.postgres = options.postgres;
        supervision.backups = options.backups;
        // Opened before the registry serves: from then on, the health check covers the whole pair.
        let opened = supervisor_svc::Supervisor::open(supervision).await.map_err(Error::of)?;
        let shutdown = Shutdown::new();
        let mut services = JoinSet::new();
        let listener = |tcp| Listener::from(tcp).report_health_to(admin.as_ref().map(Admin::reporter));
        serve_registry(
            &mut services,
            listener(registry_listener),
            catalogue,
            secrets.authenticator(options.insecure),
            shutdown.for_service(),
        )?;
        let serving = opened.serve(
            listener(supervisor_listener),
            secrets.authenticator(options.insecure),
            ServeLimits::default(),
            shutdown.for_service(),
        );
        services.spawn(async move { serving.await.map_err(Error::of) });
        let runner_stop = CancellationToken::new();
        let mut runner = JoinSet::new();
        if let Some(own) = &options.runner {
            let config = runner_config(supervisor, own, data_dir.path(), hidden, &secrets)?;
            let run = troupe_runner::run(config, runner_stop.clone());
            runner.spawn(async move { run.await.map_err(Error::of) });
        }
        let token_file = secrets.requires_token.then(|| data_dir.path().join(OPERATOR_TOKEN));
        let token = secrets
            .operator
            .as_ref()
            .filter(|_| secrets.requires_token)
            .map_or_else(Token::none, |operator| Token::given(operator.first().expose()));
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
            telemetry,
            admin,
        })
    }

    /// Returns the registry's address.
    pub(crate) const fn registry(&self) -> SocketAddr {
        self.registry
    }

    /// Returns the supervisor's address.
    pub(crate) const fn supervisor(&self) -> SocketAddr {
        self.supervisor
    }

    /// Returns the address of health and metrics, if they are served.
    pub(crate) fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Returns the data directory.
    pub(crate) fn data_dir(&self) -> &Path {
        self.data_dir.path()
    }

    /// Returns whether the pair has a runner.
    pub(crate) fn has_runner(&self) -> bool {
        !self.runner.is_empty()
    }

    /// Returns the operator's token. Empty if this machine is trusted.
    pub(crate) const fn token(&self) -> &Token {
        &self.token
    }

    /// Returns the file of the operator's token.
    pub(crate) fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// Returns `flags` with the addresses and the data directory of the pair, so that a command connects to the pair.
    pub(crate) fn flags(&self, flags: &Global) -> Global {
        Global {
            context: None,
            supervisor: listen::url_of(self.supervisor),
            registry: listen::url_of(self.registry),
            // The token is in the data directory.
            token: None,
            token_file: None,
            tls: TlsArgs::default(),
            data_dir: Some(self.data_dir().to_owned()),
            ..flags.clone()
        }
    }

    /// Waits until a part of the pair stops unexpectedly.
    pub(crate) async fn failed(&mut self) -> Error {
        let admin = &mut self.admin;
        let broken_off = async {
            match admin {
                Some(admin) => admin.broken_off().await,
                None => pending().await,
            }
        };
        let ended = tokio::select! {
            Some(ended) = self.services.join_next() => ended,
            Some(ended) = self.runner.join_next() => ended.map(|ended| ended.map(|_| ())),
            error = broken_off => Ok(Err(Error::of(error))),
        };
        match ended {
            Ok(Ok(())) => Error::failure("a service or the runner stopped unexpectedly; see the log for the reason"),
            Ok(Err(error)) => error,
            Err(error) => Error::failure(format!("a service or the runner failed: {error}")),
        }
    }

    /// Drains the runner: running turns have [`TURNS_END_WITHIN`] to finish, then they are interrupted. Then drains
    /// both services. No thread is closed. A service that hangs, for example on a disk that does not respond, is
    /// detached. Returns the threads whose turn was interrupted.
    ///
    /// # Errors
    ///
    /// Returns the first error of a part.
    pub(crate) async fn stop(mut self) -> Result<Ended> {
        self.runner_stop.cancel();
        let runner = join_all(&mut self.runner).await;
        self.shutdown.trigger();
        let deadline = self.shutdown.deadline(SERVICE_ENDS_WITHIN);
        let services = timeout_at(deadline, join_all(&mut self.services))
            .await
            .unwrap_or_else(|_| {
                // Dropping the services could block for as long as they hang.
                self.services.detach_all();
                Err(Error::failure(format!(
                    "a service did not stop within {SERVICE_ENDS_WITHIN:?}"
                )))
            });
        program::farewell(self.admin, self.telemetry).await;
        services.and(runner)
    }
}

/// Waits for all tasks. Returns the first error or the last value.
async fn join_all<T: Default + 'static>(tasks: &mut JoinSet<Result<T>>) -> Result<T> {
    let mut first = Ok(T::default());
    while let Some(ended) = tasks.join_next().await {
        let ended =
            ended.unwrap_or_else(|error| Err(Error::failure(format!("a service or the runner failed: {error}"))));
        first = first.and(ended);
    }
    first
}

fn serve_registry(
    services: &mut JoinSet<Result<()>>,
    listener: Listener,
    catalogue: registry_svc::Config,
    authenticator: Authenticator,
    shutdown: Shutdown,
) -> Result<()> {
    let registry = registry_svc::Registry::open(catalogue).map_err(Error::of)?;
    let serving = registry.serve(listener, authenticator, ServeLimits::default(), shutdown);
    services.spawn(async move { serving.await.map_err(Error::of) });
    Ok(())
}

fn runner_config(
    supervisor: SocketAddr,
    options: &RunnerOptions,
    data_dir: &Path,
    hidden: Vec<PathBuf>,
    secrets: &Secrets,
) -> Result<RunnerConfig> {
    let programs = options.programs.programs()?;
    let programs = match &options.only {
        Some(name) => programs::only(programs, name)?,
        None => programs,
    };
    let mut config = RunnerConfig::new("local", listen::url_of(supervisor), programs, data_dir.join("scratch"));
    config.state = programs::state_in(data_dir);
    config.worktrees = options.worktrees;
    config.hidden = hidden;
    config.hook = programs::hook()?;
    config.token = Some(secrets.runner.clone().into());
    config.timing.drain_limit = TURNS_END_WITHIN;
    Ok(config)
}

/// Starts logging to standard error at this level, unless `TROUPE_LOG` overrides it.
pub(crate) fn init_logging(level: &str) -> Result<()> {
    let options = LogOptions::from_env(level).map_err(usage)?;
    logging::start(&options).map_err(usage)
}

/// Takes the error by value, so that this function can be passed to `map_err`.
fn usage(error: impl Display) -> Error {
    Error::usage(error.to_string())
}
