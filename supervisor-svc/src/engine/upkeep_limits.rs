//! The limits of the maintenance of sessions.

use std::{ops::RangeInclusive, time::Duration};

/// Limits of passivation, snapshots and compaction.
#[derive(Clone, Copy, Debug)]
pub struct UpkeepLimits {
    /// How long a session without pending work stays in memory after its last use.
    pub idle: Duration,
    /// The number of events between two snapshots of a session in memory. After a crash, it bounds the
    /// events that are folded in addition to the snapshot.
    pub snapshot_every: u64,
    /// The number of events above which a log is compacted.
    pub compact_above: u64,
    /// The number of events before its snapshot that a compacted log keeps, for watchers that resume.
    pub keep_before_snapshot: u64,
    /// How long a compacted log keeps security events.
    pub keep_security_events: Duration,
}

impl Default for UpkeepLimits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(60),
            snapshot_every: 10_000,
            compact_above: 100_000,
            keep_before_snapshot: 50_000,
            keep_security_events: days(Self::SECURITY_EVENT_DAYS),
        }
    }
}

impl UpkeepLimits {
    /// The default number of days for which a compacted log keeps security events.
    pub const SECURITY_EVENT_DAYS: u32 = 90;
    /// The configurable range of days: long enough to notice an attack, and at most about a hundred years.
    const DAYS: RangeInclusive<u32> = 7..=36_500;

    /// Returns these limits with a different retention of security events.
    ///
    /// # Errors
    /// A sentence with the number and its bounds.
    pub fn keep_security_events_for(self, number: u32) -> Result<Self, String> {
        if Self::DAYS.contains(&number) {
            Ok(Self {
                keep_security_events: days(number),
                ..self
            })
        } else {
            let (least, most) = (Self::DAYS.start(), Self::DAYS.end());
            Err(format!(
                "keep_security_events is {number}; it must be {least} to {most} days"
            ))
        }
    }
}

fn days(number: u32) -> Duration {
    Duration::from_secs(24 * 60 * 60) * number
}
