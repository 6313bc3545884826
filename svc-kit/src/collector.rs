//! The connection to an OTLP collector, configured by OpenTelemetry's own variables: one connection per signal.

use std::{env, path::PathBuf, time::Duration};

use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::error::OTelSdkError;
use tonic::transport::{Channel, Endpoint};

use troupe_client::tls::{self, ClientFiles};

/// A telemetry signal that is sent to a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
}

/// Why a collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The address of the collector is invalid.
    #[error(
        "invalid collector URL {value:?} in {variable}; expected a gRPC endpoint such as \"http://127.0.0.1:4317\""
    )]
    Endpoint {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
    },
    /// The protocol is not supported.
    #[error("unsupported protocol {value:?} in {variable}; use \"grpc\"")]
    Protocol {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
    },
    /// The client certificate for the collector lacks its key, or the key lacks its certificate.
    #[error(
        "a client's certificate for the collector needs its key: set both {0}_CLIENT_CERTIFICATE and {0}_CLIENT_KEY"
    )]
    HalfIdentity(&'static str),
}

/// The reason why telemetry cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The collector is invalid.
    #[error(transparent)]
    Collector(#[from] CollectorError),
    /// The OpenTelemetry variables are invalid.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
    /// Metrics cannot be initialized. This is a defect of the build.
    #[error("cannot initialize metrics: {0}")]
    Metrics(#[from] OTelSdkError),
}

impl Signal {
    const fn name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    /// Returns the connection for this signal; `None` if no collector is configured.
    ///
    /// # Errors
    ///
    /// If the variables are invalid.
    pub(crate) fn channel(self) -> Result<Option<Channel>, CollectorError> {
        let is_off = given("OTEL_SDK_DISABLED").is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"))
            || given(&format!("OTEL_{}_EXPORTER", self.name())).is_some_and(|(_, value)| value == "none");
        let Some((variable, value)) = self.setting("ENDPOINT").filter(|_| !is_off) else {
            return Ok(None);
        };
        if let Some((variable, value)) = self.setting("PROTOCOL").filter(|(_, value)| value != "grpc") {
            return Err(CollectorError::Protocol { variable, value });
        }
        let files = ClientFiles {
            authorities: self.file("CERTIFICATE"),
            identity: match (self.file("CLIENT_CERTIFICATE"), self.file("CLIENT_KEY")) {
                (None, None) => None,
                (Some(certificate), Some(key)) => Some((certificate, key)),
                (Some(_), None) | (None, Some(_)) => return Err(CollectorError::HalfIdentity(PREFIX)),
            },
        };
        let endpoint = Endpoint::from_shared(value.clone()).ok().filter(is_absolute);
        let endpoint = endpoint.ok_or(CollectorError::Endpoint { variable, value })?;
        let within = self.timeout();
        // The exporters set no time limit, so the channel sets it. Without a limit, calls would wait forever on the
        // connection of a peer that has vanished. Pings are sent only while a call is pending: collectors dislike pings
        // on idle connections.
        let endpoint = endpoint
            .timeout(within)
            .http2_keep_alive_interval(within / 2)
            .keep_alive_timeout(within / 4);
        Ok(Some(tls::channel(&endpoint, &files)))
    }

    /// The time limit of a call. The variable is in milliseconds. An invalid value counts as unset, as in every SDK.
    fn timeout(self) -> Duration {
        let said: Option<u64> = self.setting("TIMEOUT").and_then(|(_, value)| value.parse().ok());
        let within = said.filter(|within| *within > 0);
        within.map_or(TIMEOUT, Duration::from_millis)
    }

    fn file(self, name: &str) -> Option<PathBuf> {
        self.setting(name).map(|(_, path)| PathBuf::from(path))
    }

    /// Returns the name and the value of this signal's variable. If the variable is not set, returns those of the
    /// variable for all signals.
    fn setting(self, name: &str) -> Option<(String, String)> {
        given(&format!("{PREFIX}_{}_{name}", self.name())).or_else(|| given(&format!("{PREFIX}_{name}")))
    }
}

/// Default time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Prefix of the OTLP variables.
const PREFIX: &str = "OTEL_EXPORTER_OTLP";

/// Returns a variable and its value. An empty value counts as unset.
pub(crate) fn given(variable: &str) -> Option<(String, String)> {
    let value = env::var(variable).ok().filter(|value| !value.is_empty())?;
    Some((variable.to_owned(), value))
}

fn is_absolute(endpoint: &Endpoint) -> bool {
    let uri = endpoint.uri();
    matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
}
