//! The other members, and which of them no longer beat.

use std::{collections::HashMap, time::Duration};

use supervisor_log::store::{Member, MemberId};
use tokio::time::Instant;

/// How long a member may not beat before it is removed.
pub(super) const DEAD_AFTER: Duration = Duration::from_secs(4);

/// The usual maximum time until a member that died is removed. It is longer than [`DEAD_AFTER`], because the member's
/// last beat may be recent and a beat of the observer may be late.
pub(super) const REMOVED_WITHIN: Duration = Duration::from_secs(7);

/// Maximum time between two beats of this supervisor that counts as continuous observation.
const LONGEST_GAP: Duration = Duration::from_secs(2);

/// The last observation of a member.
#[derive(Clone, Copy, Debug)]
struct Seen {
    beats: u64,
    since: Instant,
}

/// Observes the beats of the other members. Time counts only while the observer's own beats succeed: an outage of the
/// database removes no member.
#[derive(Debug, Default)]
pub(super) struct Observer {
    seen: HashMap<MemberId, Seen>,
    last: Option<Instant>,
}

/// The result of an observation.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Members that no longer beat, with their last beat.
    pub dead: Vec<(MemberId, u64)>,
    /// Members that have left or were removed by others.
    pub gone: Vec<MemberId>,
}

impl Observer {
    /// Forgets how long the members have been silent, because a beat of this supervisor failed.
    pub fn reset(&mut self) {
        self.last = None;
    }

    /// Takes the other members that a beat of this supervisor at `now` returned.
    pub fn observe(&mut self, others: &[&Member], now: Instant) -> Observed {
        let is_continuous = self.last.is_some_and(|last| now - last <= LONGEST_GAP);
        self.last = Some(now);
        let mut observed = Observed::default();
        let mut seen = HashMap::new();
        for member in others {
            let fresh = Seen {
                beats: member.beats,
                since: now,
            };
            let entry = match self.seen.remove(&member.id) {
                Some(before) if is_continuous && before.beats == member.beats => before,
                Some(_) | None => fresh,
            };
            if now - entry.since >= DEAD_AFTER {
                observed.dead.push((member.id, member.beats));
            }
            seen.insert(member.id, entry);
        }
        observed.gone.extend(self.seen.drain().map(|(id, _)| id));
        self.seen = seen;
        observed
    }

    /// Forgets a member that was removed.
    pub fn forget(&mut self, member: MemberId) {
        self.seen.remove(&member);
    }
}

#[cfg(test)]
mod tests {
    use supervisor_log::store::{Beat, MemberState, NewMember};

    use super::*;

    fn member(beats: u64) -> Member {
        Member {
            id: MemberId::from_uuid(uuid::Uuid::from_u128(1)),
            info: NewMember {
                name: String::from("one"),
                address: String::new(),
                release: String::new(),
            },
            last: Beat {
                state: MemberState::Active,
                sessions: 0,
                runners: 0,
            },
            beats,
        }
    }

    #[test]
    fn silent_member_is_dead_after_its_time() {
        let (mut observer, start) = (Observer::default(), Instant::now());
        for second in 0..4 {
            let observed = observer.observe(&[&member(7)], start + Duration::from_secs(second));
            assert_eq!(observed.dead, [], "after {second} s");
        }
        let observed = observer.observe(&[&member(7)], start + DEAD_AFTER);
        assert_eq!(observed.dead, [(member(7).id, 7)]);
    }

    #[test]
    fn member_that_beats_is_alive() {
        let (mut observer, start) = (Observer::default(), Instant::now());
        for second in 0..20 {
            let observed = observer.observe(&[&member(second / 3)], start + Duration::from_secs(second));
            assert_eq!(observed.dead, []);
        }
    }

    #[test]
    fn time_without_own_beats_does_not_count() {
        let (mut observer, start) = (Observer::default(), Instant::now());
        observer.observe(&[&member(7)], start);
        // The observer was paused.
        let observed = observer.observe(&[&member(7)], start + Duration::from_secs(60));
        assert_eq!(observed.dead, []);
        // The database was not available.
        observer.reset();
        let observed = observer.observe(&[&member(7)], start + Duration::from_secs(61));
        assert_eq!(observed.dead, []);
    }

    #[test]
    fn member_that_left_is_gone() {
        let mut observer = Observer::default();
        observer.observe(&[&member(7)], Instant::now());
        let observed = observer.observe(&[], Instant::now());
        assert_eq!(observed.gone, [member(7).id]);
    }
}
