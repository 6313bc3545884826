//! Creates the instruments of all crates. They do nothing while metrics are disabled; see [`crate::metrics`].

use opentelemetry::{
    global,
    metrics::{Counter, Meter},
};

/// Returns the meter of this program.
#[must_use]
pub fn meter() -> Meter {
    global::meter("troupe")
}

/// Creates a counter that is exported from the start with the value 0, so that the first increase is visible.
#[must_use]
pub fn counter(name: &'static str, what: &'static str) -> Counter<u64> {
    let counter = meter().u64_counter(name).with_description(what).build();
    counter.add(0, &[]);
    counter
}
