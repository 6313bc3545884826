//! Metrics for operators. `docs/monitoring.md` lists them.

use opentelemetry::{KeyValue, metrics::Counter};
use svc_kit::instruments::counter;

use crate::error::Error;

/// A binding of the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Binding {
    Grpc,
    JsonRpc,
    HttpJson,
}

impl Binding {
    const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::JsonRpc => "jsonrpc",
            Self::HttpJson => "http_json",
        }
    }
}

/// The outcome of an attempt to send a push notification.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delivery {
    Accepted,
    /// The attempt failed and will be repeated.
    Failed,
    /// The maximum number of attempts failed.
    GivenUp,
}

impl Delivery {
    const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Failed => "failed",
            Self::GivenUp => "given_up",
        }
    }
}

/// The metric instruments of the port.
#[derive(Debug)]
pub(crate) struct Metrics {
    calls: Counter<u64>,
    notifications: Counter<u64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            calls: counter(
                "troupe.a2a.calls",
                "Calls of A2A clients, counted when their response begins",
            ),
            notifications: counter("troupe.a2a.notifications", "Attempts to send a push notification"),
        }
    }
}

impl Metrics {
    /// Counts a call.
    pub(crate) fn called(&self, binding: Binding, failure: Option<&Error>) {
        let failure = failure.map(|error| KeyValue::new("error.type", error.kind.reason()));
        let attributes: Vec<_> = [KeyValue::new("binding", binding.name())]
            .into_iter()
            .chain(failure)
            .collect();
        self.calls.add(1, &attributes);
    }

    /// Counts an attempt to send a push notification.
    pub(crate) fn notified(&self, delivery: Delivery) {
        self.notifications.add(1, &[KeyValue::new("outcome", delivery.name())]);
    }
}
