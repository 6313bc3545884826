//! Who tells: what all spans and metrics of this process say of it, once.

use opentelemetry::KeyValue;
use opentelemetry_sdk::{
    Resource,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
};
use uuid::Uuid;

use crate::collector::given;

/// This process, by the name of its program and an id of its own; what OpenTelemetry's variables say counts instead.
pub(crate) fn of(process: &'static str) -> Resource {
    let resource = Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", process),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", Uuid::new_v4().to_string()),
        ])
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    // It wins over a name among the attributes.
    match given("OTEL_SERVICE_NAME") {
        Some((_, name)) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}
