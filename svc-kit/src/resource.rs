//! The OpenTelemetry resource of this process: the attributes that all spans and metrics share.

use opentelemetry::KeyValue;
use opentelemetry_sdk::{
    Resource,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
};
use uuid::Uuid;

use crate::collector::given;

/// Returns the resource with the program's name and a random instance id. OpenTelemetry's environment variables
/// override both.
pub(crate) fn of(process: &'static str) -> Resource {
    let resource = Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", process),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("service.instance.id", Uuid::new_v4().to_string()),
        ])
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()));
    // This variable overrides a name among the attributes.
    match given("OTEL_SERVICE_NAME") {
        Some((_, name)) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}
