//! Decisions of operators that were returned to a call. A call without an id, in a thread without turns, is
//! indistinguishable from earlier or concurrent equal calls, so a decision applies to the first call that receives it.
//! This state is lost at a restart. After that, a decision stays valid for as long as its approval would have waited.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::domain::{ids::{ApprovalId, Sequence}, state::approval::Approval};

/// The maximum number of remembered decisions. The oldest are forgotten first.
const MAX_HEARD: usize = 10_000;

/// An approval and its request. The sequence distinguishes approvals, because an id is reused after the session forgets
/// its approval.
type Asked = (ApprovalId, Sequence);

/// The decisions that were returned to a call.
#[derive(Debug, Default)]
pub struct HeardDecisions {
    // Held for one look-up or one change, never across an await.
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    asked: HashSet<Asked>,
    /// The same decisions, oldest first.
    order: VecDeque<Asked>,
}

impl HeardDecisions {
    /// Claims a decision for a call. Returns false if another call has claimed it.
    pub(super) fn claim(&self, decided: &Approval) -> bool {
        let asked = (decided.id, decided.sequence);
        let mut heard = self.lock();
        if !heard.asked.insert(asked) {
            return false;
        }
        heard.order.push_back(asked);
        if heard.order.len() > MAX_HEARD
            && let Some(oldest) = heard.order.pop_front()
        {
            heard.asked.remove(&oldest);
        }
        true
    }

    /// Returns whether a call has claimed the decision.
    pub(super) fn has(&self, decided: &Approval) -> bool {
        self.lock().asked.contains(&(decided.id, decided.sequence))
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
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
            deadline: UnixMillis::new(1),
            edge: None,
            call: None,
            verdict: None,
        }
    }

    #[test]
    fn a_decision_is_for_the_first_that_hears_it() {
        let heard = HeardDecisions::default();
        assert!(heard.claim(&approval(1, 1)));
        assert!(!heard.claim(&approval(1, 1)));
        assert!(heard.claim(&approval(1, 2)), "it was asked anew under the same id");
    }

    #[test]
    fn the_latest_are_remembered() {
        let heard = HeardDecisions::default();
        for number in 0..=MAX_HEARD {
            heard.claim(&approval(number, 1));
        }
        assert!(!heard.has(&approval(0, 1)));
        assert!(heard.has(&approval(1, 1)) && heard.has(&approval(MAX_HEARD, 1)));
    }
}
