//! Logging for binaries. Libraries emit `tracing` events; where they go is decided here, once, by `main`.
//!
//! Never in a log, whatever the level: tokens, prompts, inputs.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::{EnvFilter, fmt};

/// The target of what an operator may have to account for later and no event records. Kept apart by a filter such as
/// `audit=info`.
pub const AUDIT: &str = "audit";

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: one line an event, in colour on a terminal.
    #[default]
    Text,
    /// For machines: one JSON object an event.
    Json,
}

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error("invalid log filter {filter:?}: {problem}; expected something like \"info\" or \"info,svc_kit=debug\"")]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Someone was first.
    #[error("logging was started twice")]
    Started,
}

/// Starts logging to standard error. Called once, by a binary's `main`.
///
/// # Errors
///
/// If the filter does not parse, or logging was started before.
pub fn init_logging(format: LogFormat, filter: &str) -> Result<(), TelemetryError> {
    let parsed = EnvFilter::try_new(filter).map_err(|error| TelemetryError::Filter {
        filter: filter.to_owned(),
        problem: error.to_string(),
    })?;
    let builder = fmt().with_env_filter(parsed).with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => builder.with_ansi(colour()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_ansi(false).try_init(),
    };
    started.map_err(|_| TelemetryError::Started)
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
        let error = init_logging(LogFormat::Text, "svc_kit=shout").unwrap_err();
        assert!(error.to_string().contains("svc_kit=shout"), "{error}");
    }
}
