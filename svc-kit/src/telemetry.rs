//! The traces and metrics of a process. They are global: start them once, before creating instruments, and end them
//! last.

use std::{thread, time::Duration};

use prometheus::Registry;
use tokio::{sync::oneshot, time::timeout};

pub use crate::collector::TelemetryError;
use crate::{metrics::Metrics, resource, traces::Traces};

/// How long exporting the last spans and metrics may take. A shorter deadline of the process takes precedence.
const EXPORT_TIMEOUT: Duration = Duration::from_millis(800);

/// The enabled traces and metrics of this process.
#[derive(Debug)]
pub struct Telemetry {
    traces: Option<Traces>,
    metrics: Option<Metrics>,
}

impl Telemetry {
    /// Starts the exports for which a collector is configured, and metrics if `is_read_here` is set. Requires a Tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// The OpenTelemetry variables are invalid.
    pub fn start(process: &'static str, is_read_here: bool) -> Result<Self, TelemetryError> {
        let resource = resource::of(process);
        Ok(Self {
            traces: Traces::start(resource.clone())?,
            metrics: Metrics::start(resource, is_read_here)?,
        })
    }

    /// Returns the metrics for the admin port.
    pub(crate) fn registry(&self) -> Registry {
        let metrics = self.metrics.as_ref();
        metrics.map(Metrics::registry).unwrap_or_default()
    }

    /// Exports the remaining spans and metrics. Stops after a short time if the collector does not accept them.
    pub async fn end(self) {
        let (sender, ended) = oneshot::channel();
        // The runtime does not wait for this thread.
        thread::spawn(move || {
            let ends = [
                self.traces.map(|traces| traces.end()),
                self.metrics.map(|metrics| metrics.end()),
            ];
            for error in ends.into_iter().flatten().filter_map(Result::err) {
                tracing::warn!(%error, "exporting the last spans or metrics failed");
            }
            // The receiver may have been dropped at its timeout.
            let _ = sender.send(());
        });
        if timeout(EXPORT_TIMEOUT, ended).await.is_err() {
            tracing::warn!("the collector did not accept the last spans and metrics in time");
        }
    }
}
