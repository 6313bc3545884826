//! Metrics: OpenTelemetry instruments that Prometheus reads from the admin port, that are exported to a collector over
//! OTLP, or both.
//!
//! All crates create their instruments with [`crate::instruments`]. The instruments do nothing while metrics are
//! disabled. Names follow OpenTelemetry's conventions where these define one; all other names begin with `troupe.`.
//! Labels have few values, all known in advance.

use opentelemetry::global;
use opentelemetry_otlp::{MetricExporter, WithTonicConfig as _};
use opentelemetry_sdk::{
    Resource,
    error::{OTelSdkError, OTelSdkResult},
    metrics::{Aggregation, Instrument, InstrumentKind, PeriodicReader, SdkMeterProvider, Stream},
};
#[cfg(target_os = "linux")]
use prometheus::process_collector::ProcessCollector;
use prometheus::{Encoder as _, Registry, TextEncoder};

use crate::collector::{Signal, TelemetryError};

/// The bucket boundaries of duration histograms in seconds. They range from the time of a response from memory to the
/// time of an agent's long turn.
const SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 300.0, 1_800.0,
];

/// The media type of [`text`].
pub(crate) const MEDIA_TYPE: &str = prometheus::TEXT_FORMAT;

/// The metrics of this process.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    provider: SdkMeterProvider,
}

impl Metrics {
    /// Enables metrics for the whole process if a collector is configured or `is_read_here` is set. Instruments that
    /// were created earlier do nothing, so this must run first.
    pub(crate) fn start(resource: Resource, is_read_here: bool) -> Result<Option<Self>, TelemetryError> {
        let collector = Signal::Metrics.channel()?;
        if collector.is_none() && !is_read_here {
            return Ok(None);
        }
        let registry = Registry::new();
        let mut provider = SdkMeterProvider::builder()
            .with_resource(resource)
            .with_view(in_seconds);
        if is_read_here {
            #[cfg(target_os = "linux")]
            registry
                .register(Box::new(ProcessCollector::for_self()))
                .map_err(|error| OTelSdkError::InternalFailure(error.to_string()))?;
            let exporter = opentelemetry_prometheus::exporter()
                .with_registry(registry.clone())
                .scope_info_enabled(false)
                .build()?;
            provider = provider.with_reader(exporter);
        }
        if let Some(channel) = collector {
            let exporter = MetricExporter::builder().with_tonic().with_channel(channel).build()?;
            provider = provider.with_reader(PeriodicReader::builder(exporter).build());
        }
        let provider = provider.build();
        global::set_meter_provider(provider.clone());
        Ok(Some(Self { registry, provider }))
    }

    /// Returns the registry that the admin port serves.
    pub(crate) fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// Exports the remaining metrics. Blocks.
    pub(crate) fn end(self) -> OTelSdkResult {
        self.provider.shutdown()
    }
}

/// Returns all metrics in the format of Prometheus.
///
/// # Errors
///
/// The metrics cannot be encoded. This is a defect.
pub(crate) fn text(registry: &Registry) -> prometheus::Result<Vec<u8>> {
    let mut text = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut text)?;
    Ok(text)
}

fn in_seconds(instrument: &Instrument) -> Option<Stream> {
    let is_time = instrument.kind() == InstrumentKind::Histogram && instrument.unit() == "s";
    let aggregation = Aggregation::ExplicitBucketHistogram {
        boundaries: SECONDS.to_vec(),
        record_min_max: false,
    };
    is_time
        .then(|| Stream::builder().with_aggregation(aggregation).build().ok())
        .flatten()
}
