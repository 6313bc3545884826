//! Event rate limits of a session's threads, implemented as token buckets. They prevent a thread from displacing the
//! rest of the history from the log.
//!
//! The buckets are volatile: a session that is loaded again starts with full buckets. The caller passes the time.
//! Events caused by the service, runners and operators are not limited here. A runner reports a bounded number of
//! events per turn.

use std::{collections::BTreeMap, time::Duration};

use crate::{command::Command, ids::ThreadId, principal::Actor, rejection::Rejection, time::UnixMillis};

/// Number of buckets above which full buckets are removed.
const FEW: usize = 1_024;

/// The event rate of one thread, in events per second. All other allowances derive from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRate(u32);

impl Default for EventRate {
    fn default() -> Self {
        Self(10)
    }
}

impl EventRate {
    /// The maximum rate, in events per second.
    pub const MAX: u32 = 10_000;

    /// Creates a rate from 1 to [`Self::MAX`] events per second.
    ///
    /// # Errors
    /// A sentence that names the number and its bounds.
    pub fn new(per_second: u32) -> Result<Self, String> {
        if (1..=Self::MAX).contains(&per_second) {
            Ok(Self(per_second))
        } else {
            let max = Self::MAX;
            Err(format!("thread_event_rate is {per_second}; it must be 1 to {max}"))
        }
    }

    /// Returns the allowance of one thread.
    #[must_use]
    pub const fn of_thread(self) -> Allowance {
        Allowance {
            per_second: self.0,
            burst: self.0 * 50,
        }
    }

    /// Returns the allowance of all threads of a session together. Denied tool calls have a separate allowance of the
    /// same size.
    #[must_use]
    pub const fn of_session(self) -> Allowance {
        Allowance {
            per_second: self.0 * 2,
            burst: self.0 * 200,
        }
    }
}

/// The parameters of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The sustained rate, in events per second.
    pub per_second: u32,
    /// The maximum number of events after a pause.
    pub burst: u32,
}

/// The buckets of one session.
#[derive(Debug)]
pub struct EventRates {
    rate: EventRate,
    threads: BTreeMap<ThreadId, Bucket>,
    session: Bucket,
    /// A separate bucket, so that a thread cannot hide denied calls behind a flood of other events.
    denials: Bucket,
}

impl EventRates {
    /// Creates full buckets.
    #[must_use]
    pub fn new(rate: EventRate, now: UnixMillis) -> Self {
        Self {
            rate,
            threads: BTreeMap::new(),
            session: Bucket::full(rate.of_session(), now),
            denials: Bucket::full(rate.of_session(), now),
        }
    }

    /// Charges the events of a command to the thread that causes it, if any. A remembered request costs at least one
    /// event. A close that records events is always possible and not charged. A repeated close records none and is
    /// charged. A command with more events than available is accepted and leaves a debt of at most one burst.
    ///
    /// # Errors
    /// [`Rejection::RateLimited`]. Nothing is charged in this case.
    pub fn charge(
        &mut self,
        command: &Command,
        actor: &Actor,
        events: usize,
        is_remembered: bool,
        now: UnixMillis,
    ) -> Result<(), Rejection> {
        let thread = match (command, actor) {
            (Command::Close { .. }, _) if events > 0 => return Ok(()),
            (Command::DenyTool { .. }, _) => {
                let denials = self.rate.of_session();
                return self
                    .denials
                    .take(events, denials, now)
                    .map_err(|retry_after| limited(None, denials, retry_after));
            }
            (Command::RequestToolApproval { thread, .. }, _) => *thread,
            (_, Actor::Thread(id)) => *id,
            (_, Actor::Operator(_) | Actor::Runner(_) | Actor::Service) => return Ok(()),
        };
        let events = events.max(usize::from(is_remembered));
        if events == 0 {
            return Ok(());
        }
        let (own, all) = (self.rate.of_thread(), self.rate.of_session());
        if self.threads.len() >= FEW {
            self.threads.retain(|_, bucket| !bucket.is_full(own, now));
        }
        let bucket = self.threads.entry(thread).or_insert_with(|| Bucket::full(own, now));
        bucket
            .wait(own, now)
            .map_err(|retry_after| limited(Some(thread), own, retry_after))?;
        self.session
            .take(events, all, now)
            .map_err(|retry_after| limited(None, all, retry_after))?;
        bucket.spend(events, own);
        Ok(())
    }
}

fn limited(thread: Option<ThreadId>, allowance: Allowance, retry_after: Duration) -> Rejection {
    Rejection::RateLimited {
        thread,
        per_second: allowance.per_second,
        retry_after,
    }
}

/// The remaining allowance.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// In thousandths of an event. A negative level is a debt.
    level: i64,
    /// The time of the level.
    at: UnixMillis,
}

impl Bucket {
    const EVENT: i64 = 1_000;

    fn full(allowance: Allowance, now: UnixMillis) -> Self {
        Self {
            level: capacity(allowance),
            at: now,
        }
    }

    fn refill(&mut self, allowance: Allowance, now: UnixMillis) {
        // Each millisecond adds `per_second` thousandths of an event.
        let passed = i64::try_from(now.since(self.at).as_millis()).unwrap_or(i64::MAX);
        let gained = passed.saturating_mul(i64::from(allowance.per_second));
        self.level = self.level.saturating_add(gained).min(capacity(allowance));
        self.at = self.at.max(now);
    }

    fn is_full(&mut self, allowance: Allowance, now: UnixMillis) -> bool {
        self.refill(allowance, now);
        self.level == capacity(allowance)
    }

    /// Returns an error if no event is available: the time until the next event.
    fn wait(&mut self, allowance: Allowance, now: UnixMillis) -> Result<(), Duration> {
        self.refill(allowance, now);
        let missing = Self::EVENT - self.level;
        if missing <= 0 {
            return Ok(());
        }
        let millis = missing.unsigned_abs().div_ceil(u64::from(allowance.per_second.max(1)));
        Err(Duration::from_millis(millis))
    }

    fn spend(&mut self, events: usize, allowance: Allowance) {
        let spent = i64::try_from(events).unwrap_or(i64::MAX).saturating_mul(Self::EVENT);
        self.level = self.level.saturating_sub(spent).max(-capacity(allowance));
    }

    fn take(&mut self, events: usize, allowance: Allowance, now: UnixMillis) -> Result<(), Duration> {
        self.wait(allowance, now)?;
        self.spend(events, allowance);
        Ok(())
    }
}

fn capacity(allowance: Allowance) -> i64 {
    i64::from(allowance.burst) * Bucket::EVENT
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{event::CloseCause, ids::Generation, principal::Caller};

    const START: UnixMillis = UnixMillis::new(1_000_000);

    fn thread(number: u128) -> ThreadId {
        ThreadId::from_uuid(Uuid::from_u128(number))
    }

    fn note(by: ThreadId) -> (Command, Actor) {
        let caller = Caller::Thread {
            id: by,
            generation: Generation::new(1),
        };
        let command = Command::SetNote {
            caller,
            target: by,
            note: String::new(),
        };
        (command, Actor::Thread(by))
    }

    fn charge(rates: &mut EventRates, (command, actor): &(Command, Actor), now: UnixMillis) -> Result<(), Rejection> {
        rates.charge(command, actor, 1, false, now)
    }

    /// Returns the number of events of a thread that are accepted at this time.
    fn passing(rates: &mut EventRates, by: u128, now: UnixMillis) -> usize {
        let note = note(thread(by));
        (0..100_000).take_while(|_| charge(rates, &note, now).is_ok()).count()
    }

    #[test]
    fn thread_gets_its_burst_then_its_rate() {
        let mut rates = EventRates::new(EventRate::default(), START);
        assert_eq!(passing(&mut rates, 1, START), 500);
        let refused = charge(&mut rates, &note(thread(1)), START).unwrap_err();
        assert_eq!(
            refused,
            Rejection::RateLimited {
                thread: Some(thread(1)),
                per_second: 10,
                retry_after: Duration::from_millis(100),
            }
        );
        let later = START.plus(Duration::from_millis(100));
        assert_eq!(passing(&mut rates, 1, later), 1);
        assert_eq!(passing(&mut rates, 1, later.plus(Duration::from_secs(3))), 30);
        // A clock that is set back adds no events.
        assert_eq!(passing(&mut rates, 1, START), 0);
        assert_eq!(
            passing(&mut rates, 1, later.plus(Duration::from_secs(24 * 60 * 60))),
            500
        );
    }

    #[test]
    fn threads_of_session_share_an_allowance() {
        let mut rates = EventRates::new(EventRate::default(), START);
        let passed: usize = (0..100).map(|by| passing(&mut rates, by, START)).sum();
        assert_eq!(passed, 2_000);
        let refused = charge(&mut rates, &note(thread(101)), START).unwrap_err();
        assert!(matches!(
            refused,
            Rejection::RateLimited {
                thread: None,
                per_second: 20,
                ..
            }
        ));
        let hour = START.plus(Duration::from_secs(60 * 60));
        assert_eq!((0..100).map(|by| passing(&mut rates, by, hour)).sum::<usize>(), 2_000);
    }

    #[test]
    fn closing_and_denials_pass_when_thread_is_limited() {
        let mut rates = EventRates::new(EventRate::default(), START);
        let (_, by) = note(thread(1));
        for by in 1..10 {
            passing(&mut rates, by, START);
        }
        let close = Command::Close {
            caller: Caller::Thread {
                id: thread(1),
                generation: Generation::new(1),
            },
            target: thread(2),
            reason: String::new(),
            cause: CloseCause::Close,
            within: Duration::from_secs(1),
            policy: None,
        };
        let denied = Command::DenyTool {
            thread: thread(1),
            tool: String::from("exec_command"),
            reason: String::new(),
            count: 1,
        };
        rates.charge(&close, &by, 1, false, START).unwrap();
        rates.charge(&close, &by, 0, false, START).unwrap();
        rates.charge(&close, &by, 0, true, START).unwrap_err();
        rates.charge(&denied, &Actor::Service, 1, false, START).unwrap();
        rates
            .charge(&note(thread(1)).0, &Actor::Operator(String::new()), 1, false, START)
            .unwrap();
        rates.charge(&note(thread(1)).0, &by, 1, false, START).unwrap_err();
        rates.charge(&note(thread(1)).0, &by, 0, false, START).unwrap();
    }

    #[test]
    fn command_with_many_events_leaves_bounded_debt() {
        let mut rates = EventRates::new(EventRate::default(), START);
        let (command, by) = note(thread(1));
        rates.charge(&command, &by, usize::MAX, false, START).unwrap();
        let refused = rates.charge(&command, &by, 1, false, START).unwrap_err();
        let Rejection::RateLimited { retry_after, .. } = refused else {
            panic!("{refused}");
        };
        assert_eq!(retry_after, Duration::from_millis(50_100));
    }
}
