//! Metrics of the cluster.

use opentelemetry::{KeyValue, metrics::Counter};
use supervisor_log::store::MemberState;
use svc_kit::instruments::{counter, meter};

use super::{Cluster, forward::Sent};

/// Counters of the actions of this member.
pub(super) struct Metrics {
    pub removed: Counter<u64>,
    pub handed_over: Counter<u64>,
    forwarded: Counter<u64>,
}

impl Metrics {
    pub fn new() -> Self {
        let new = Self {
            removed: counter(
                "troupe.members.removed",
                "Supervisors that no longer beat and that this one removed",
            ),
            handed_over: counter(
                "troupe.sessions.handed.over",
                "Sessions that this supervisor gave to another one",
            ),
            forwarded: meter()
                .u64_counter("troupe.calls.forwarded")
                .with_description("Calls that this supervisor sent to the owner of their session, by result")
                .build(),
        };
        for result in Sent::RESULTS {
            new.count_forwarded(result, 0);
        }
        new
    }

    pub fn forwarded(&self, sent: &Sent) {
        self.count_forwarded(sent.result(), 1);
    }

    fn count_forwarded(&self, result: &'static str, count: u64) {
        self.forwarded.add(count, &[KeyValue::new("result", result)]);
    }
}

/// Registers gauges that are computed whenever the metrics are read.
pub(super) fn observe(cluster: &Cluster) {
    let counted = cluster.clone();
    meter()
        .u64_observable_gauge("troupe.members")
        .with_description("Supervisors in the cluster, by state")
        .with_callback(move |gauge| {
            let members = counted.members();
            for (state, name) in [(MemberState::Active, "active"), (MemberState::Leaving, "leaving")] {
                let count = members.iter().filter(|member| member.last.state == state).count();
                gauge.observe(count as u64, &[KeyValue::new("state", name)]);
            }
        })
        .build();
    let held = cluster.clone();
    meter()
        .f64_observable_gauge("troupe.lease.left")
        .with_unit("s")
        .with_description("Time for which this supervisor may answer from its memory without another beat")
        .with_callback(move |gauge| gauge.observe(held.shared.lease.left().as_secs_f64(), &[]))
        .build();
}
