//! Logging for binaries. Libraries emit `tracing` events; `main` configures once where they are written.
//!
//! A log line never contains tokens, prompts or inputs, at any level.

use std::{
    env,
    io::{self, IsTerminal as _},
};

use clap::ValueEnum as _;
use tracing_subscriber::{EnvFilter, fmt};

/// The log target of audit records: actions that an operator may have to account for and that no event records. A
/// filter such as `audit=info` selects them.
pub const AUDIT: &str = "audit";

/// The log flags of a program.
#[derive(Clone, Debug, clap::Args)]
pub struct LogOptions {
    /// Log filter, in the syntax of `RUST_LOG`
    #[arg(long, env = "TROUPE_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// Format of log lines: text for people, or one JSON object per line
    #[arg(long, env = "TROUPE_LOG_FORMAT", value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

impl LogOptions {
    /// Returns the options from the environment alone, with `level` as the default filter. Used by programs whose
    /// output is not their log.
    ///
    /// # Errors
    ///
    /// `TROUPE_LOG_FORMAT` has an unknown value.
    pub fn from_env(level: &str) -> Result<Self, LoggingError> {
        let format = env::var("TROUPE_LOG_FORMAT").ok().filter(|format| !format.is_empty());
        Ok(Self {
            log: env::var("TROUPE_LOG").unwrap_or_else(|_| level.to_owned()),
            log_format: match format {
                Some(format) => LogFormat::from_str(&format, true).map_err(|_| LoggingError::Format(format))?,
                None => LogFormat::default(),
            },
        })
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line per event for people, in colour on a terminal.
    #[default]
    Text,
    /// One JSON object per event for machines.
    Json,
}

/// The reason why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter is invalid.
    #[error("invalid log filter {filter:?}: {problem}; expected something like \"info\" or \"info,svc_kit=debug\"")]
    Filter {
        /// The filter as given.
        filter: String,
        /// The defect.
        problem: String,
    },
    /// The format is unknown.
    #[error("unknown log format {0:?} in TROUPE_LOG_FORMAT; use \"text\" or \"json\"")]
    Format(String),
    /// Another call has already started logging.
    #[error("logging was started twice")]
    Started,
}

/// Starts logging to standard error. A binary's `main` calls it once.
///
/// # Errors
///
/// The filter is invalid, or logging has already been started.
pub fn start(options: &LogOptions) -> Result<(), LoggingError> {
    let parsed = EnvFilter::try_new(&options.log).map_err(|error| LoggingError::Filter {
        filter: options.log.clone(),
        problem: error.to_string(),
    })?;
    let builder = fmt().with_env_filter(parsed).with_writer(io::stderr);
    let started = match options.log_format {
        LogFormat::Text => builder.with_ansi(colour()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_ansi(false).try_init(),
    };
    started.map_err(|_| LoggingError::Started)
}

/// Returns whether to use colour: standard error is a terminal and `NO_COLOR` is not set.
fn colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_filter_is_named_in_error() {
        let options = LogOptions {
            log: "svc_kit=shout".to_owned(),
            log_format: LogFormat::Text,
        };
        let error = start(&options).unwrap_err();
        assert!(error.to_string().contains("svc_kit=shout"), "{error}");
    }
}
