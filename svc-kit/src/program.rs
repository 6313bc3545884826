//! The common part of the `main` functions of both services.

use std::{
    env,
    fmt::Display,
    future::Future,
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{CommandFactory, FromArgMatches};
use serde_json::json;
use tokio::{
    runtime,
    task::JoinError,
    time::{sleep_until, timeout_at},
};

use crate::{
    admin::{Admin, AdminError, AdminOptions},
    jwt::JwtOptions,
    logging::{self, LogOptions},
    paths::{self, PathsError},
    serve_limits::{MAX_CONNECTION_AGE, MAX_CONNECTIONS_PER_ADDRESS, ServeLimits},
    settings::{Settings, SettingsError, SettingsOptions},
    shutdown::{PROCESS_ENDS_WITHIN, SERVICE_ENDS_WITHIN, Shutdown},
    telemetry::{Telemetry, TelemetryError},
    tls::TlsOptions,
};

/// The exit code for invalid arguments.
const USAGE: u8 = 2;

/// The flags that all services have.
#[derive(Clone, Debug, clap::Args)]
pub struct ServiceOptions {
    /// The TLS flags.
    #[command(flatten)]
    pub tls: TlsOptions,
    /// The JWT flags.
    #[command(flatten)]
    pub jwt: JwtOptions,
    /// The flags of the admin port.
    #[command(flatten)]
    pub admin: AdminOptions,
    /// Age in seconds at which a connection must close, so that clients behind a load balancer spread again;
    /// open streams continue. 0: no limit
    #[arg(
        long,
        env = "TROUPE_MAX_CONNECTION_AGE",
        value_name = "SECONDS",
        default_value_t = MAX_CONNECTION_AGE.as_secs()
    )]
    pub max_connection_age: u64,
    /// Maximum number of connections from one address, or from one /64 network for IPv6; loopback has no limit of its
    /// own. Raise it if all clients connect through one proxy
    #[arg(
        long,
        env = "TROUPE_MAX_CONNECTIONS_PER_ADDRESS",
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..),
        default_value_t = MAX_CONNECTIONS_PER_ADDRESS
    )]
    pub max_connections_per_address: u32,
    /// Disable reflection, which shows the methods to every client that reaches the service
    #[arg(long, env = "TROUPE_NO_REFLECTION")]
    pub no_reflection: bool,
    /// Serve on a non-loopback address without authentication
    #[arg(long)]
    pub insecure: bool,
    /// File for the addresses of the service as JSON, written when the service is ready
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// The log flags.
    #[command(flatten)]
    pub log: LogOptions,
    /// The settings flags.
    #[command(flatten)]
    pub settings: SettingsOptions,
}

impl ServiceOptions {
    /// Returns the server limits that the flags set.
    #[must_use]
    pub fn limits(&self) -> ServeLimits {
        ServeLimits {
            max_connections_per_address: usize::try_from(self.max_connections_per_address).unwrap_or(usize::MAX),
            max_connection_age: (self.max_connection_age > 0).then(|| Duration::from_secs(self.max_connection_age)),
            ..ServeLimits::default()
        }
    }
}

/// Runs a program with the options `O`. Prints help or settings if the arguments ask for it.
pub fn main<O, F, E>(run: impl FnOnce(O) -> F) -> ExitCode
where
    O: CommandFactory + FromArgMatches + AsRef<ServiceOptions>,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let settings = match Settings::gather(&O::command(), &[], env::args_os()) {
        Ok(settings) => settings,
        Err(SettingsError::Usage(error)) => error.exit(),
        Err(error) => return report_usage_error(&error, error.remedy()),
    };
    let options = match O::from_arg_matches(&settings.matches) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    if let Some(format) = options.as_ref().settings.print_config {
        let printed = writeln!(io::stdout(), "{}", settings.to_text(format));
        return if printed.is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    if let Err(error) = logging::start(&options.as_ref().log) {
        return report_usage_error(&error, None);
    }
    let ended = match runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let ended = runtime.block_on(run(options));
            // Do not wait for blocking work: a service that is stopped while it opens may still verify its log.
            runtime.shutdown_background();
            ended
        }
        Err(error) => {
            tracing::error!(%error, "cannot start");
            return ExitCode::FAILURE;
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints an error in the arguments. Logging has not started at this point.
fn report_usage_error(error: &dyn Display, remedy: Option<&str>) -> ExitCode {
    let remedy = remedy.map(|remedy| format!("\n  hint: {remedy}")).unwrap_or_default();
    // If standard error is closed, the exit code is the only report.
    let _ = writeln!(io::stderr(), "error: {error}{remedy}");
    ExitCode::from(USAGE)
}

/// The parts of a process around its service: signals, traces, metrics and the admin port.
#[derive(Debug)]
pub struct Program {
    shutdown: Shutdown,
    telemetry: Telemetry,
    admin: Option<Admin>,
}

/// The reason why these parts cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The signal handlers cannot be installed.
    #[error("cannot install signal handlers: {0}")]
    Signals(#[from] io::Error),
    /// Traces or metrics cannot start.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The admin port cannot be opened.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

impl Program {
    /// Starts signal handling, telemetry and the admin port for these `services`. Call this function before the service
    /// opens. Opening may take long; in the meantime the process reports that it is alive, and it can be stopped.
    ///
    /// # Errors
    ///
    /// The address of the admin port is not available, or an OpenTelemetry variable is invalid.
    pub async fn start(process: &'static str, services: &[&str], admin: &AdminOptions) -> Result<Self, ProgramError> {
        let shutdown = Shutdown::by_signal()?;
        let telemetry = Telemetry::start(process, admin.admin_listen.is_some())?;
        let admin = Admin::start(admin, &telemetry, services).await?;
        Ok(Self {
            shutdown,
            telemetry,
            admin,
        })
    }

    /// Returns the shutdown handle that SIGTERM and SIGINT trigger.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Waits until the service is open and returns the result of `opening`. Returns `None` if the shutdown was
    /// triggered first.
    pub async fn open<F: Future>(&self, opening: F) -> Option<F::Output> {
        tokio::select! {
            opened = opening => Some(opened),
            () = self.shutdown.triggered() => None,
        }
    }

    /// Returns the admin port, if there is one.
    #[must_use]
    pub const fn admin(&self) -> Option<&Admin> {
        self.admin.as_ref()
    }

    /// Writes the ready file with the addresses of the service and the admin port, if the options name one.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn ready(&self, options: &ServiceOptions, service: &str, address: SocketAddr) -> Result<(), PathsError> {
        let Some(path) = &options.ready_file else {
            return Ok(());
        };
        let mut said = json!({ service: address.to_string() });
        if let Some(admin) = &self.admin {
            said["admin"] = json!(admin.address().to_string());
        }
        paths::write_ready_file(path, &said)
    }

    /// Runs the service to its end. Returns `None` if the service did not end within [`SERVICE_ENDS_WITHIN`] after the
    /// trigger of the shutdown. The remaining work is then abandoned; acknowledged writes are already durable.
    ///
    /// # Errors
    ///
    /// The service panicked. This is a defect.
    pub async fn serve<F>(&self, serving: F) -> Result<Option<F::Output>, JoinError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // The service runs in a task of its own, because dropping the future here could block on an operation that
        // hangs, such as a disk access.
        let mut service = tokio::spawn(serving);
        let overdue = async {
            self.shutdown.triggered().await;
            sleep_until(self.shutdown.deadline(SERVICE_ENDS_WITHIN)).await;
        };
        tokio::select! {
            served = &mut service => served.map(Some),
            () = overdue => {
                tracing::warn!(deadline = ?SERVICE_ENDS_WITHIN, "service did not stop in time; abandoning it");
                Ok(None)
            }
        }
    }

    /// Stops the admin port and exports the remaining telemetry. Call this function after the service has ended, so
    /// that the drain is observable.
    pub async fn end(self) {
        let Self {
            shutdown,
            telemetry,
            admin,
        } = self;
        let deadline = shutdown.deadline(PROCESS_ENDS_WITHIN);
        if timeout_at(deadline, farewell(admin, telemetry)).await.is_err() {
            tracing::warn!(deadline = ?PROCESS_ENDS_WITHIN, "admin port and telemetry did not stop in time; abandoning them");
        }
    }
}

/// Stops the admin port and exports the remaining telemetry at the same time.
pub async fn farewell(admin: Option<Admin>, telemetry: Telemetry) {
    let unserved = async {
        if let Some(admin) = admin {
            admin.end().await;
        }
    };
    tokio::join!(unserved, telemetry.end());
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, timeout};

    use super::*;

    fn program() -> Program {
        let telemetry = Telemetry::start("a test", false).unwrap();
        Program {
            shutdown: Shutdown::new(),
            telemetry,
            admin: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_service_is_abandoned_at_deadline() {
        let program = program();
        let began = Instant::now();
        program.shutdown().trigger();
        let served = program.serve(pending::<()>()).await.unwrap();
        assert!(served.is_none());
        assert!(began.elapsed() < PROCESS_ENDS_WITHIN, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn service_has_no_deadline_before_shutdown() {
        let program = program();
        let serving = program.serve(pending::<()>());
        assert!(timeout(2 * PROCESS_ENDS_WITHIN, serving).await.is_err());
        let served = program.serve(async { "an outcome" }).await.unwrap();
        assert_eq!(served, Some("an outcome"));
    }
}
