//! Which threads a listing shows: scopes around a thread, in spawn order.

use std::{collections::BTreeSet, sync::Arc};

use super::{ids::ThreadId, session::Session, status::StatusKind, thread::Thread};

/// Which threads around one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// Its children.
    Children,
    /// Everything below it.
    Descendants,
    /// Everything that the caller may see.
    All,
}

/// What a listing asks for.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Where to look from.
    pub around: ThreadId,
    /// The thread below which the caller may see; the root for operators.
    pub visible: ThreadId,
    /// Which threads around it.
    pub scope: ListScope,
    /// Closed ones too.
    pub include_closed: bool,
    /// The thread itself too.
    pub include_self: bool,
    /// Only these statuses; empty: all.
    pub statuses: BTreeSet<StatusKind>,
}

/// The threads that a listing shows, in spawn order.
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
