//! Metrics: instruments of OpenTelemetry, read by Prometheus from the admin port.
//!
//! Whoever measures asks [`meter`] for instruments, in whatever crate. Where nobody reads them ([`Metrics::start`] was
//! not called) they do nothing. Names follow OpenTelemetry's conventions where there are any, and begin with `troupe.`
//! where there are none; labels have few values, all of them known beforehand.

use opentelemetry::{
    global,
    metrics::{Counter, Meter},
};
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::{
    Resource,
    metrics::{Aggregation, Instrument, InstrumentKind, SdkMeterProvider, Stream},
};
use prometheus::{Encoder as _, Registry, TextEncoder};

/// How histograms of times are divided, in seconds: from an answer out of memory to a call that waits for its deadline.
const SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// The media type of what [`Metrics::text`] answers.
pub(crate) const MEDIA_TYPE: &str = prometheus::TEXT_FORMAT;

/// What is measured in this process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Starts measuring, for everything in this process. Instruments that were made before do nothing; so this comes first.
    ///
    /// # Errors
    ///
    /// If the exporter cannot be made: a defect of the build.
    pub fn start(service: &'static str) -> Result<Self, OTelSdkError> {
        let registry = Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()?;
        let provider = SdkMeterProvider::builder()
            .with_reader(exporter)
            .with_resource(Resource::builder().with_service_name(service).build())
            .with_view(in_seconds)
            .build();
        global::set_meter_provider(provider);
        Ok(Self { registry })
    }

    /// All of it, as Prometheus reads it.
    ///
    /// # Errors
    ///
    /// If it cannot be written: a defect.
    pub(crate) fn text(&self) -> prometheus::Result<Vec<u8>> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

/// Where instruments are made.
#[must_use]
pub fn meter() -> Meter {
    global::meter("troupe")
}

/// A counter that is there from the start, so that its first increase is seen.
#[must_use]
pub fn counter(name: &'static str, what: &'static str) -> Counter<u64> {
    let counter = meter().u64_counter(name).with_description(what).build();
    counter.add(0, &[]);
    counter
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
