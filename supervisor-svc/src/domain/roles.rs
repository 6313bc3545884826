//! The roles of a session's threads, each once: a thousand threads of a role share what it says.

use std::{cmp::Ordering, sync::Arc};

use imbl::OrdSet;

use super::event::Role;

/// Every role that a thread of the session has. It grows with the threads, which are never forgotten either.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Roles(OrdSet<Entry>);

/// Ordered by what the role says; the very same role is equal without a look at it.
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
    /// The role that equals this one and that the threads before share; this one if it is the first.
    pub fn shared(&mut self, role: &Arc<Role>) -> Arc<Role> {
        let entry = Entry(Arc::clone(role));
        if let Some(Entry(known)) = self.0.get(&entry) {
            return Arc::clone(known);
        }
        self.0.insert(entry);
        Arc::clone(role)
    }
}
