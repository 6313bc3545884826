//! Logging for binaries. Libraries emit `tracing` events; where they go is decided here, once, by `main`.
//!
//! Never in a log, whatever the level: tokens, prompts, inputs.

use std::{
    env,
    io::{self, IsTerminal as _},
};

use clap::ValueEnum as _;
use tracing_subscriber::{EnvFilter, fmt};

/// The target of what an operator may have to account for later and no event records. Kept apart by a filter such as
/// `audit=info`.
pub const AUDIT: &str = "audit";

/// What is logged, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct LogOptions {
    /// What to log, as `RUST_LOG` has it
    #[arg(long, env = "TROUPE_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// How log lines look: for people, or a JSON object each
    #[arg(long, env = "TROUPE_LOG_FORMAT", value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

impl LogOptions {
    /// For programs whose answers are not their log: the variables alone, and less than the usual.
    ///
    /// # Errors
    ///
    /// If a variable has another value than it may have.
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

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people: one line an event, in colour on a terminal.
    #[default]
    Text,
    /// For machines: one JSON object an event.
    Json,
}

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter does not parse.
    #[error("invalid log filter {filter:?}: {problem}; expected something like \"info\" or \"info,svc_kit=debug\"")]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no such format.
    #[error("TROUPE_LOG_FORMAT={0:?} is no format of log lines: expected text or json")]
    Format(String),
    /// Someone was first.
    #[error("logging was started twice")]
    Started,
}

/// Starts logging to standard error. Called once, by a binary's `main`.
///
/// # Errors
///
/// If the filter does not parse, or logging was started before.
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

/// Colour only where a person looks, and only unless they asked for none (`NO_COLOR`).
fn colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_filter_is_named_in_the_error() {
        let options = LogOptions {
            log: "svc_kit=shout".to_owned(),
            log_format: LogFormat::Text,
        };
        let error = start(&options).unwrap_err();
        assert!(error.to_string().contains("svc_kit=shout"), "{error}");
    }
}
