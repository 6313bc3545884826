//! What a process tells of itself beside its log: spans and metrics. Both are of the whole process, so this is started
//! once, before anything that is measured is made, and ended last.

use std::{thread, time::Duration};

use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::error::OTelSdkError;
use prometheus::Registry;
use tokio::{sync::oneshot, time::timeout};

use crate::{collector::CollectorError, metrics::Metrics, resource, traces::Traces};

/// How long the last spans and metrics may take; less if the process is to have ended before.
const FAREWELL: Duration = Duration::from_millis(800);

/// Why nothing can be told.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The collector is not one.
    #[error(transparent)]
    Collector(#[from] CollectorError),
    /// What the variables of OpenTelemetry say is of no use.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
    /// Nothing can be measured: a defect of the build.
    #[error("metrics cannot be had: {0}")]
    Metrics(#[from] OTelSdkError),
}

/// Spans and metrics of this process, as far as somebody wants them.
#[derive(Debug)]
pub struct Telemetry {
    traces: Option<Traces>,
    metrics: Option<Metrics>,
}

impl Telemetry {
    /// Starts what a collector is named for, and measuring for those who read metrics here if there are any. Needs a Tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// If what the variables of OpenTelemetry say is of no use.
    pub fn start(process: &'static str, is_read_here: bool) -> Result<Self, TelemetryError> {
        let resource = resource::of(process);
        Ok(Self {
            traces: Traces::start(resource.clone())?,
            metrics: Metrics::start(resource, is_read_here)?,
        })
    }

    /// What is measured, for those who read it here.
    pub(crate) fn registry(&self) -> Registry {
        let metrics = self.metrics.as_ref();
        metrics.map(Metrics::registry).unwrap_or_default()
    }

    /// Sends what is left, as far as the collector takes it in a moment: nobody's end waits for it.
    pub async fn end(self) {
        let (sender, ended) = oneshot::channel();
        // A thread that the runtime does not wait for.
        thread::spawn(move || {
            let ends = [
                self.traces.map(|traces| traces.end()),
                self.metrics.map(|metrics| metrics.end()),
            ];
            for error in ends.into_iter().flatten().filter_map(Result::err) {
                tracing::warn!(%error, "the last spans or metrics were not sent");
            }
            // Whoever ended may be gone by now.
            let _ = sender.send(());
        });
        if timeout(FAREWELL, ended).await.is_err() {
            tracing::warn!("the collector did not take the last spans and metrics in time");
        }
    }
}
