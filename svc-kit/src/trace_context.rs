//! The trace context of a call (W3C `traceparent`): read from the caller or created, and passed on.
//!
//! `tracestate` is vendor-specific and is not passed on.

use std::fmt;

use http::{HeaderMap, HeaderValue};
use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator as _},
    trace::{SpanContext, TraceContextExt as _},
};
use opentelemetry_sdk::{
    propagation::TraceContextPropagator,
    trace::{IdGenerator as _, RandomIdGenerator},
};
use tonic::{
    Request,
    metadata::{MetadataMap, MetadataValue},
};

const HEADER: &str = "traceparent";
/// Version 0 has 55 characters. Later versions may be longer.
const MAX_BYTES: usize = 128;

/// A valid `traceparent` of version 0. Its 55 characters are safe to store and to log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent(String);

impl TraceParent {
    /// Parses the text of a header. A later version is converted to version 0.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        Self::of_span(extract(text).span().span_context())
    }

    /// Returns the trace context of a span, or `None` if the span is not recorded.
    pub(crate) fn of_span(span: &SpanContext) -> Option<Self> {
        span.is_valid().then(|| {
            let sampled = u8::from(span.trace_flags().is_sampled());
            Self(format!("00-{}-{}-{sampled:02x}", span.trace_id(), span.span_id()))
        })
    }

    /// Converts to OpenTelemetry's type.
    pub(crate) fn context(&self) -> Context {
        extract(&self.0)
    }

    /// Creates a trace with random ids. It is marked as sampled; the recorder decides whether to record it.
    #[must_use]
    pub fn root() -> Self {
        let ids = RandomIdGenerator::default();
        Self(format!("00-{}-{}-01", ids.new_trace_id(), ids.new_span_id()))
    }

    /// Returns the valid trace context in the headers of a call.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        Self::parse(headers.get(HEADER)?.to_str().ok()?)
    }

    /// Returns the trace context of a request, or a new one if the request did not pass [`crate::call::CallLayer`].
    #[must_use]
    pub fn of<T>(request: &Request<T>) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_else(Self::root)
    }

    /// Returns the text of the header.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Sets the header of an outgoing call.
    pub(crate) fn put(&self, headers: &mut HeaderMap) {
        // Hexadecimal digits and hyphens are always valid.
        if let Ok(value) = HeaderValue::try_from(self.as_str()) {
            headers.insert(HEADER, value);
        }
    }

    /// Returns the trace id as shown in logs: 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        self.0.get(3..35).unwrap_or_default()
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Sets the trace context in the metadata of an outgoing call.
pub fn inject(metadata: &mut MetadataMap, parent: &TraceParent) {
    // Hexadecimal digits and hyphens are always valid.
    if let Ok(value) = MetadataValue::try_from(parent.as_str()) {
        metadata.insert(HEADER, value);
    }
}

fn extract(text: &str) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Header(text))
}

/// Gives the propagator access to the header.
struct Header<'a>(&'a str);

impl Extractor for Header<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == HEADER).then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec![HEADER]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_valid_trace_contexts_are_parsed() {
        let zero_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let long = format!(
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-{}",
            "x".repeat(200)
        );
        for (text, expected) in [
            (VALID, Some(VALID)),
            (
                "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
                Some(VALID),
            ),
            ("", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", None),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
            (zero_trace, None),
            (long.as_str(), None),
        ] {
            assert_eq!(
                TraceParent::parse(text).as_ref().map(TraceParent::as_str),
                expected,
                "{text}"
            );
        }
        assert_eq!(
            TraceParent::parse(VALID).unwrap().trace_id(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
    }

    #[test]
    fn new_trace_is_valid_and_passed_on() {
        let root = TraceParent::root();
        assert_eq!(TraceParent::parse(root.as_str()), Some(root.clone()));
        assert_ne!(root, TraceParent::root());

        let mut metadata = MetadataMap::new();
        inject(&mut metadata, &root);
        assert_eq!(TraceParent::from_headers(&metadata.into_headers()), Some(root));
    }
}
