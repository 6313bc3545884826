//! The source of wall-clock time and new ids. The supervisor's clock is injected, so that a test can use a clock that
//! produces the same history on every run.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use uuid::Uuid;

use crate::domain::time::UnixMillis;

/// What a clock rests on.
pub trait TimeSource: Send + Sync + 'static {
    /// The time of day.
    fn now(&self) -> UnixMillis;

    /// Returns a new UUID. It is a UUIDv7, so that ids sort by creation time.
    fn new_uuid(&self) -> Uuid;
}

/// The time of day and new ids. Cheap to clone; every clone is the same clock.
#[derive(Clone)]
pub struct Clock(Arc<dyn TimeSource>);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl Clock {
    /// The clock that rests on `source`.
    #[must_use]
    pub fn new(source: impl TimeSource) -> Self {
        Self(Arc::new(source))
    }

    /// The clock of this machine.
    #[must_use]
    pub fn system() -> Self {
        Self::new(System::start())
    }

    /// The time of day.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        self.0.now()
    }

    /// A new id.
    #[must_use]
    pub fn new_id<I: From<Uuid>>(&self) -> I {
        I::from(self.0.new_uuid())
    }

    /// The time and up to a fifth more, so that what began together does not end together.
    #[must_use]
    pub fn jittered(&self, time: Duration) -> Duration {
        time + self.part_of(time / 5)
    }

    /// A part of the time, from none to nearly all of it, as it happens. In whole milliseconds, which timers count in:
    /// a seeded history would depend on how they round.
    #[must_use]
    pub fn part_of(&self, time: Duration) -> Duration {
        // The lowest bits of a UUIDv7 are random.
        let random = self.0.new_uuid().as_u128() % 1_000;
        Duration::from_millis(u64::try_from(time.as_millis() * random / 1_000).unwrap_or_default())
    }
}

/// A session's wall clock. It never runs behind the session's log and advances at the rate of real time. If the log
/// was written by a clock that ran ahead, time continues from the log's last timestamp.
#[derive(Clone, Debug)]
pub struct SessionClock {
    clock: Clock,
    ahead: Duration,
}

impl SessionClock {
    /// Returns the clock of a session whose newest event has the given time.
    #[must_use]
    pub fn of(clock: &Clock, updated: UnixMillis) -> Self {
        Self {
            ahead: updated.since(clock.now()),
            clock: clock.clone(),
        }
    }

    /// The time of day in the session.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        self.clock.now().plus(self.ahead)
    }
}

/// The operating system's clock at its first reading, plus the time elapsed since. Deadlines do not move when the
/// system clock is changed.
struct System {
    begun: UnixMillis,
    since: Instant,
}

impl System {
    fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            begun: UnixMillis::new(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)),
            since: Instant::now(),
        }
    }
}

impl TimeSource for System {
    fn now(&self) -> UnixMillis {
        self.begun.plus(self.since.elapsed())
    }

    fn new_uuid(&self) -> Uuid {
        Uuid::now_v7()
    }
}
