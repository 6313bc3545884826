//! Which decisions of operators were told to a call that asked. A call without an id of its own, in a thread without turns,
//! cannot be told from the one before it: a decision that was heard is not for the next one. Lost at a restart; then a decision
//! stands for as long as its approval would have waited.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::domain::{ids::ApprovalId, session::Session};

/// How many are remembered, those that were heard last.
const MAX_HEARD: usize = 10_000;

/// The decisions that were heard.
#[derive(Debug, Default)]
pub struct HeardDecisions {
    // Held for one look-up or one change, never across an await.
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    ids: HashSet<ApprovalId>,
    /// The same, in the order in which they were heard.
    order: VecDeque<ApprovalId>,
}

impl HeardDecisions {
    /// Somebody was told how that was decided.
    pub(super) fn note(&self, approval: ApprovalId) {
        let mut heard = self.lock();
        if !heard.ids.insert(approval) {
            return;
        }
        heard.order.push_back(approval);
        if heard.order.len() > MAX_HEARD
            && let Some(oldest) = heard.order.pop_front()
        {
            heard.ids.remove(&oldest);
        }
    }

    /// As [`Self::note`], if it is decided.
    pub(super) fn note_decided(&self, state: &Session, approval: ApprovalId) {
        let known = state.approvals.get(&approval);
        if known.is_some_and(|approval| approval.verdict.is_some()) {
            self.note(approval);
        }
    }

    /// It is asked anew: an id comes again once the session has forgotten the approval that had it.
    pub(super) fn forget(&self, approval: ApprovalId) {
        let mut heard = self.lock();
        if heard.ids.remove(&approval) {
            heard.order.retain(|other| *other != approval);
        }
    }

    pub(super) fn has(&self, approval: ApprovalId) -> bool {
        self.lock().ids.contains(&approval)
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn id(number: usize) -> ApprovalId {
        ApprovalId::from_uuid(Uuid::from_u128(number as u128))
    }

    #[test]
    fn the_latest_are_remembered() {
        let heard = HeardDecisions::default();
        for number in 0..=MAX_HEARD {
            heard.note(id(number));
            heard.note(id(number));
        }
        assert!(!heard.has(id(0)));
        assert!(heard.has(id(1)) && heard.has(id(MAX_HEARD)));
        heard.forget(id(1));
        assert!(!heard.has(id(1)));
    }
}
