//! The source of wall-clock time and new ids. The supervisor's clock is injected, so that a test can use a clock that
//! produces the same history on every run.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use uuid::Uuid;

use crate::domain::time::UnixMillis;

/// The source of a clock's time and ids.
pub trait TimeSource: Send + Sync + 'static {
    /// Returns the time of day.
    fn now(&self) -> UnixMillis;

    /// Returns a new UUID. It is a UUIDv7, so that ids sort by creation time.
    fn new_uuid(&self) -> Uuid;
}

/// The time of day and new ids. Cheap to clone; all clones share the same source.
#[derive(Clone)]
pub struct Clock(Arc<dyn TimeSource>);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl Clock {
    /// Creates a clock that reads `source`.
    #[must_use]
    pub fn new(source: impl TimeSource) -> Self {
        Self(Arc::new(source))
    }

    /// Returns the clock of this machine.
    #[must_use]
    pub fn system() -> Self {
        Self::new(System::start())
    }

    /// Returns the time of day.
    #[must_use]
    pub fn now(&self) -> UnixMillis {
        self.0.now()
    }

    /// Returns a new id.
    #[must_use]
    pub fn new_id<I: From<Uuid>>(&self) -> I {
        I::from(self.0.new_uuid())
    }

    /// Returns the given time plus a random part of up to a fifth, so that tasks that began together do not end
    /// together.
    #[must_use]
    pub fn jittered(&self, time: Duration) -> Duration {
        time + self.random_part(time / 5)
    }

    /// Returns a random part of the given time, from zero to nearly all of it. The result is in whole milliseconds, the
    /// resolution of timers: otherwise a seeded history would depend on their rounding.
    #[must_use]
    pub fn random_part(&self, time: Duration) -> Duration {
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

    /// Returns the time of day in the session.
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
