//! Catalogue metrics for operators. `docs/monitoring.md` lists them.

use opentelemetry::metrics::{Counter, Gauge};
use svc_kit::instruments::{counter, meter};

use crate::domain::catalog::Catalog;

/// The metric instruments of a registry.
#[derive(Debug)]
pub(super) struct Metrics {
    loads: Counter<u64>,
    templates: Gauge<u64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            loads: counter(
                "troupe.catalogue.loads",
                "Number of times a catalogue was built, initially or because a template changed",
            ),
            templates: meter()
                .u64_gauge("troupe.catalogue.templates")
                .with_description("Templates of the catalogues in memory")
                .build(),
        }
    }
}

impl Metrics {
    /// Records the load of a catalogue. `kept` are the catalogues in memory after the load.
    pub fn loaded<'c>(&self, kept: impl Iterator<Item = &'c Catalog>) {
        self.loads.add(1, &[]);
        let templates: usize = kept.map(Catalog::count).sum();
        self.templates.record(templates as u64, &[]);
    }
}
