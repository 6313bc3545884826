//! A service as a program: what the `main` of each does alike, around what it serves.

use std::{
    env,
    fmt::Display,
    future::Future,
    io::{self, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches};
use serde_json::json;

use crate::{
    admin::{Admin, AdminError, AdminOptions},
    jwt::JwtOptions,
    logging::{self, LogOptions},
    paths::{self, PathsError},
    settings::{Settings, SettingsError, SettingsOptions},
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
    /// Operators of an identity provider.
    #[command(flatten)]
    pub jwt: JwtOptions,
    /// The admin port.
    #[command(flatten)]
    pub admin: AdminOptions,
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

/// Runs a program whose options are an `O`: shows help or settings if that is asked for, else does what it is for.
pub async fn main<O, F, E>(run: impl FnOnce(O) -> F) -> ExitCode
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
    match run(options).await {
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

/// What goes on around a service: spans, metrics, and the admin port.
#[derive(Debug)]
pub struct Program {
    telemetry: Telemetry,
    admin: Option<Admin>,
}

/// Why a service cannot be surrounded by these.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// Nothing can be told of it.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// It has no admin port.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

impl Program {
    /// Starts them, so before the service is opened.
    ///
    /// # Errors
    ///
    /// If the address of the admin port cannot be had, or what the variables of OpenTelemetry say is of no use.
    pub async fn start(process: &'static str, admin: &AdminOptions) -> Result<Self, ProgramError> {
        let telemetry = Telemetry::start(process, admin.admin_listen.is_some())?;
        let admin = Admin::open(admin, &telemetry).await?;
        Ok(Self { telemetry, admin })
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

    /// Goes on as long as the service serves, so that it is seen to drain, and sends what is left then.
    pub async fn beside<F: Future>(self, serving: F) -> F::Output {
        let served = Admin::beside(self.admin, serving).await;
        self.telemetry.end().await;
        served
    }
}
