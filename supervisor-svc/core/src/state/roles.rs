//! The distinct roles of a session's threads. Threads with equal roles share one allocation.

use std::{cmp::Ordering, sync::Arc};

use imbl::OrdSet;

use crate::event::Role;

/// Every role of the session's threads. The set never shrinks, because threads are never removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Roles(OrdSet<Entry>);

/// A role, ordered by its content. Identical allocations compare as equal without reading the content.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry(Arc<Role>);

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            Ordering::Equal
        } else {
            self.0.cmp(&other.0)
        }
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Roles {
    /// Returns the shared role that equals this one, or this one if it is the first.
    pub fn shared(&mut self, role: &Arc<Role>) -> Arc<Role> {
        let entry = Entry(Arc::clone(role));
        if let Some(Entry(known)) = self.0.get(&entry) {
            return Arc::clone(known);
        }
        self.0.insert(entry);
        Arc::clone(role)
    }
}
