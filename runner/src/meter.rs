//! Telemetry of a thread. A new value replaces an older one and lost values do no harm, so telemetry is sent at most
//! four times a second.

use std::time::Duration;

use tokio::time::Instant;
use troupe_proto::supervisor::v1::{PlanStep, ToolUse};

use crate::text::keep_end;

/// Minimum time between two messages about a thread.
const INTERVAL: Duration = Duration::from_millis(250);
/// Maximum size of the waiting output, in bytes. The supervisor stores the same amount.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// The latest values about a thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TelemetryValues {
    pub(crate) context_left_percent: Option<u32>,
    pub(crate) last_tool: Option<ToolUse>,
    pub(crate) activity: String,
    pub(crate) plan: Vec<PlanStep>,
}

/// Collects a thread's telemetry and determines when it is sent.
#[derive(Debug)]
pub(crate) struct Meter {
    shown: TelemetryValues,
    changed: bool,
    output: String,
    not_before: Instant,
}

/// The telemetry that is sent in one message.
#[derive(Debug, PartialEq)]
pub(crate) struct Reading {
    /// The values, if they have changed.
    pub(crate) shown: Option<TelemetryValues>,
    /// The output since the last reading. It may be empty.
    pub(crate) output: String,
}

impl Meter {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            shown: TelemetryValues::default(),
            changed: false,
            output: String::new(),
            not_before: now,
        }
    }

    pub(crate) fn show(&mut self, change: impl FnOnce(&mut TelemetryValues)) {
        change(&mut self.shown);
        self.changed = true;
    }

    pub(crate) fn output(&mut self, text: &str) {
        self.output.push_str(text);
        self.output.push('\n');
        keep_end(&mut self.output, MAX_OUTPUT_BYTES);
    }

    /// Returns the time of the next reading. `None`: nothing changed.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.changed || !self.output.is_empty()).then_some(self.not_before)
    }

    /// Removes and returns the telemetry to send. The next reading is due one interval later at the earliest.
    pub(crate) fn take(&mut self, now: Instant) -> Reading {
        self.not_before = now + INTERVAL;
        Reading {
            shown: std::mem::take(&mut self.changed).then(|| self.shown.clone()),
            output: std::mem::take(&mut self.output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_conflated_and_output_is_collected() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        assert_eq!(meter.due(), None);
        meter.show(|shown| shown.activity = "one".to_owned());
        assert_eq!(meter.due(), Some(start));
        assert_eq!(
            meter.take(start).shown.map(|shown| shown.activity),
            Some("one".to_owned())
        );

        meter.show(|shown| shown.activity = "two".to_owned());
        meter.show(|shown| shown.activity = "three".to_owned());
        meter.output("a");
        meter.output("b");
        assert_eq!(meter.due(), Some(start + INTERVAL));
        let reading = meter.take(start + INTERVAL);
        assert_eq!(reading.shown.map(|shown| shown.activity), Some("three".to_owned()));
        assert_eq!(reading.output, "a\nb\n");
        assert_eq!(meter.due(), None);
    }

    #[test]
    fn pending_output_is_bounded() {
        let mut meter = Meter::new(Instant::now());
        meter.output(&"x".repeat(2 * MAX_OUTPUT_BYTES));
        assert_eq!(meter.take(Instant::now()).output.len(), MAX_OUTPUT_BYTES);
    }
}
