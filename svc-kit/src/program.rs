//! A service as a program: what the `main` of each does alike, around what it serves.

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
    serve::{MAX_CONNECTION_AGE, MAX_CONNECTIONS_PER_ADDRESS, ServeLimits},
    settings::{Settings, SettingsError, SettingsOptions},
    shutdown::{PROCESS_ENDS_WITHIN, SERVICE_ENDS_WITHIN, Shutdown},
    telemetry::{Telemetry, TelemetryError},
    tls::TlsOptions,
};

/// How a program ends that was started in a way that it cannot make sense of.
const USAGE: u8 = 2;

/// The flags that every service has.
#[derive(Clone, Debug, clap::Args)]
pub struct ServiceOptions {
    /// TLS.
    #[command(flatten)]
    pub tls: TlsOptions,
    /// Callers who come with a JWT.
    #[command(flatten)]
    pub jwt: JwtOptions,
    /// The admin port.
    #[command(flatten)]
    pub admin: AdminOptions,
    /// After how many seconds a connection is asked to go away, so that clients behind a balancer spread anew; streams on it
    /// live on. 0: connections stay
    #[arg(
        long,
        env = "TROUPE_MAX_CONNECTION_AGE",
        value_name = "SECONDS",
        default_value_t = MAX_CONNECTION_AGE.as_secs()
    )]
    pub max_connection_age: u64,
    /// How many connections one address may have at once, of IPv6 one /64 network; loopback has no bound of its own. Raise it
    /// where all clients come through one proxy
    #[arg(
        long,
        env = "TROUPE_MAX_CONNECTIONS_PER_ADDRESS",
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..),
        default_value_t = MAX_CONNECTIONS_PER_ADDRESS
    )]
    pub max_connections_per_address: u32,
    /// Answer no reflection, by which everybody who reaches the service may ask for its methods
    #[arg(long, env = "TROUPE_NO_REFLECTION")]
    pub no_reflection: bool,
    /// Serve off loopback although nobody has to prove who they are
    #[arg(long)]
    pub insecure: bool,
    /// Write the addresses as JSON into this file once the service serves
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// The log.
    #[command(flatten)]
    pub log: LogOptions,
    /// Where settings are.
    #[command(flatten)]
    pub settings: SettingsOptions,
}

impl ServiceOptions {
    /// The bounds of the service, as far as they are set.
    #[must_use]
    pub fn limits(&self) -> ServeLimits {
        ServeLimits {
            max_connections_per_address: usize::try_from(self.max_connections_per_address).unwrap_or(usize::MAX),
            max_connection_age: (self.max_connection_age > 0).then(|| Duration::from_secs(self.max_connection_age)),
            ..ServeLimits::default()
        }
    }
}

/// Runs a program whose options are an `O`: shows help or settings if that is asked for, else does what it is for.
pub fn main<O, F, E>(run: impl FnOnce(O) -> F) -> ExitCode
where
    O: CommandFactory + FromArgMatches + AsRef<ServiceOptions>,
    F: Future<Output = Result<(), E>>,
    E: Display,
{
    let settings = match Settings::gather(&O::command(), &[], env::args_os()) {
        Ok(settings) => settings,
        Err(SettingsError::Usage(error)) => error.exit(),
        Err(error) => return refuse(&error, error.remedy()),
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
        return refuse(&error, None);
    }
    let ended = match runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let ended = runtime.block_on(run(options));
            // Who is stopped while it opens does not wait until the whole log is checked.
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

/// Says what is wrong with how the program was started, before there is a log to say it in.
fn refuse(error: &dyn Display, remedy: Option<&str>) -> ExitCode {
    let remedy = remedy.map(|remedy| format!("\n  hint: {remedy}")).unwrap_or_default();
    // Where nobody can be told, the exit code has to do.
    let _ = writeln!(io::stderr(), "error: {error}{remedy}");
    ExitCode::from(USAGE)
}

/// What goes on around a service: signals, spans, metrics, and the admin port.
#[derive(Debug)]
pub struct Program {
    shutdown: Shutdown,
    telemetry: Telemetry,
    admin: Option<Admin>,
}

/// Why a service cannot be surrounded by these.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It cannot be told to stop.
    #[error("signals cannot be heard: {0}")]
    Signals(#[from] io::Error),
    /// Nothing can be told of it.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// It has no admin port.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

impl Program {
    /// Starts them, so before the service, which has these `services`, is opened: that may take long, and meanwhile the
    /// process is seen to live and can be stopped.
    ///
    /// # Errors
    ///
    /// If the address of the admin port cannot be had, or what the variables of OpenTelemetry say is of no use.
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

    /// What SIGTERM and SIGINT trigger.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// What comes of opening the service; `None`: it is to stop before that.
    pub async fn open<F: Future>(&self, opening: F) -> Option<F::Output> {
        tokio::select! {
            opened = opening => Some(opened),
            () = self.shutdown.triggered() => None,
        }
    }

    /// The admin port, if there is one.
    #[must_use]
    pub const fn admin(&self) -> Option<&Admin> {
        self.admin.as_ref()
    }

    /// Writes where the service is, and the admin port, if that is asked for.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
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

    /// What comes of serving. `None`: the process is to stop, and the service has not ended in time. What hangs is left behind
    /// then: what was answered is durable by that time.
    ///
    /// # Errors
    ///
    /// If the service broke off: a defect.
    pub async fn serve<F>(&self, serving: F) -> Result<Option<F::Output>, JoinError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // A task of its own. To drop it here could take as long as what it hangs in, such as a disk that does not answer.
        let mut service = tokio::spawn(serving);
        let overdue = async {
            self.shutdown.triggered().await;
            sleep_until(self.shutdown.deadline(SERVICE_ENDS_WITHIN)).await;
        };
        tokio::select! {
            served = &mut service => served.map(Some),
            () = overdue => {
                tracing::warn!(deadline = ?SERVICE_ENDS_WITHIN, "the service did not end in time and is left behind");
                Ok(None)
            }
        }
    }

    /// Ends it, after the service, so that that is seen to drain; and sends what is left.
    pub async fn end(self) {
        let Self {
            shutdown,
            telemetry,
            admin,
        } = self;
        let deadline = shutdown.deadline(PROCESS_ENDS_WITHIN);
        if timeout_at(deadline, farewell(admin, telemetry)).await.is_err() {
            tracing::warn!(deadline = ?PROCESS_ENDS_WITHIN, "health and telemetry did not end in time and are cut off");
        }
    }
}

/// Ends what tells of a process, which has nothing more to tell. At once, and so within the longer time of the two.
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
    async fn a_service_that_hangs_is_left_behind_in_time() {
        let program = program();
        let began = Instant::now();
        program.shutdown().trigger();
        let served = program.serve(pending::<()>()).await.unwrap();
        assert!(served.is_none());
        assert!(began.elapsed() < PROCESS_ENDS_WITHIN, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_has_all_the_time_until_it_is_told_to_end() {
        let program = program();
        let serving = program.serve(pending::<()>());
        assert!(timeout(2 * PROCESS_ENDS_WITHIN, serving).await.is_err());
        let served = program.serve(async { "an outcome" }).await.unwrap();
        assert_eq!(served, Some("an outcome"));
    }
}
