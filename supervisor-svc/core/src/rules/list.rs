//! Thread listings: the threads in a scope around a thread, in spawn order.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    ids::ThreadId,
    state::{session::Session, thread::Thread},
    status::StatusKind,
};

/// The scope of a listing, relative to one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// Its children.
    Children,
    /// All descendants.
    Descendants,
    /// All threads that are visible to the caller.
    All,
}

/// The parameters of a listing.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The thread at the center of the scope.
    pub around: ThreadId,
    /// The top of the subtree that is visible to the caller. The root for operators.
    pub visible: ThreadId,
    /// The scope.
    pub scope: ListScope,
    /// Whether closed threads are included.
    pub include_closed: bool,
    /// Whether the thread itself is included.
    pub include_self: bool,
    /// The statuses to include. Empty includes all.
    pub statuses: BTreeSet<StatusKind>,
}

/// Returns the listed threads in spawn order.
#[must_use]
pub fn list(session: &Session, listing: &Listing) -> Vec<Arc<Thread>> {
    let mut found: Vec<&Arc<Thread>> = match listing.scope {
        ListScope::Children => session
            .thread(listing.around)
            .into_iter()
            .flat_map(|thread| thread.children.iter())
            .filter_map(|id| session.thread(*id))
            .collect(),
        ListScope::Descendants => session
            .subtree(listing.around)
            .into_iter()
            .filter(|thread| thread.id != listing.around)
            .collect(),
        ListScope::All => session
            .subtree(listing.visible)
            .into_iter()
            .filter(|thread| thread.id != listing.around)
            .collect(),
    };
    if listing.include_self {
        found.extend(session.thread(listing.around));
    }
    found.sort_by_key(|thread| thread.spawn_sequence);
    found
        .into_iter()
        .filter(|thread| {
            let kind = thread.status.kind();
            (listing.include_closed || kind.is_open())
                && (listing.statuses.is_empty() || listing.statuses.contains(&kind))
        })
        .cloned()
        .collect()
}
