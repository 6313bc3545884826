//! Decisions of operators that were returned to a call. A call without an id, in a thread without turns, is
//! indistinguishable from earlier or concurrent equal calls, so a decision applies to the first call that receives it.
//! This state is lost at a restart. After that, a decision stays valid for as long as its approval would have waited.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::domain::{
    ids::{ApprovalId, Sequence},
    state::approval::Approval,
};

/// The maximum number of remembered decisions. The oldest are forgotten first.
const MAX_CLAIMED: usize = 10_000;

/// An approval and its request. The sequence distinguishes approvals, because an id is reused after the session forgets
/// its approval.
type Asked = (ApprovalId, Sequence);

/// The decisions that were returned to a call.
#[derive(Debug, Default)]
pub struct ClaimedDecisions {
    // Held for one look-up or one change, never across an await.
    claimed: Mutex<Claimed>,
}

#[derive(Debug, Default)]
struct Claimed {
    asked: HashSet<Asked>,
    /// The same decisions, oldest first.
    order: VecDeque<Asked>,
}

impl ClaimedDecisions {
    /// Claims a decision for a call. Returns false if another call has claimed it.
    pub(super) fn claim(&self, decided: &Approval) -> bool {
        let asked = (decided.id, decided.sequence);
        let mut claimed = self.lock();
        if !claimed.asked.insert(asked) {
            return false;
        }
        claimed.order.push_back(asked);
        if claimed.order.len() > MAX_CLAIMED
            && let Some(oldest) = claimed.order.pop_front()
        {
            claimed.asked.remove(&oldest);
        }
        true
    }

    /// Returns whether a call has claimed the decision.
    pub(super) fn contains(&self, decided: &Approval) -> bool {
        self.lock().asked.contains(&(decided.id, decided.sequence))
    }

    fn lock(&self) -> MutexGuard<'_, Claimed> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::{event::ApprovalKind, ids::ThreadId, time::UnixMillis};

    fn approval(number: usize, sequence: u64) -> Approval {
        Approval {
            id: ApprovalId::from_uuid(Uuid::from_u128(number as u128)),
            thread: ThreadId::from_uuid(Uuid::nil()),
            kind: ApprovalKind::Tool,
            subject: String::new(),
            sequence: Sequence::new(sequence),
            requested: UnixMillis::new(0),
            deadline: Some(UnixMillis::new(1)),
            edge: None,
            call: None,
            verdict: None,
        }
    }

    #[test]
    fn decision_is_claimed_once() {
        let claimed = ClaimedDecisions::default();
        assert!(claimed.claim(&approval(1, 1)));
        assert!(!claimed.claim(&approval(1, 1)));
        assert!(
            claimed.claim(&approval(1, 2)),
            "it was requested again under the same id"
        );
    }

    #[test]
    fn latest_claims_are_remembered() {
        let claimed = ClaimedDecisions::default();
        for number in 0..=MAX_CLAIMED {
            claimed.claim(&approval(number, 1));
        }
        assert!(!claimed.contains(&approval(0, 1)));
        assert!(claimed.contains(&approval(1, 1)) && claimed.contains(&approval(MAX_CLAIMED, 1)));
    }
}
