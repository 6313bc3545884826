//! Loading of a session: takes ownership, restores the snapshot, folds the rest of the log and restores the first
//! requests of the request log.

use futures::TryFutureExt as _;
use supervisor_log::{
    codec::{decode_snapshot, record},
    store::{Claim, EventStore, ReadError, Refusal, Snapshot, StoredRecord, WriteError, limits::MAX_PAGE},
};
use tokio::task::{spawn_blocking, yield_now};

use super::{
    error::Failure,
    stored_requests::{self, Page},
};
use crate::domain::{
    evolve,
    ids::{Epoch, Sequence, SessionId},
    state::session::Session,
};

/// The maximum number of records that are folded without yielding. Folding them takes a few tenths of a millisecond.
const YIELD_AFTER: usize = 128;

/// The number of records in the first page. The page is small, because folding cannot start before it arrives.
const FIRST_PAGE: usize = 128;

/// A session rebuilt from its log.
pub(super) struct Loaded {
    pub session: Session,
    pub epoch: Epoch,
    /// The first page of the remembered requests.
    pub requests: Page,
    /// The sequence of the store's readable snapshot; zero without a snapshot.
    pub snapshot: Sequence,
    /// The size of the stored content, in bytes.
    pub content_bytes: u64,
}

/// The state where folding begins.
enum Base {
    /// At the first event: there is no snapshot.
    Beginning,
    /// After the snapshot.
    Snapshot(Box<Session>),
    /// At the first event: the snapshot is unusable, for this reason.
    Unusable(Failure),
}

/// Takes ownership of the session, which fences off an earlier owner, and loads the session. If only one process uses
/// the log, both steps start concurrently, and events that an earlier owner still appended are folded afterwards. If
/// several processes share the log, loading starts after the claim, because another process may own the session.
pub(super) async fn load(store: &dyn EventStore, id: SessionId) -> Result<Loaded, Failure> {
    let (claim, early) = if store.is_shared() {
        (store.claim(id).await, None)
    } else {
        let (claim, early) = tokio::join!(store.claim(id), restore_at_head(store, id));
        (claim, Some(early))
    };
    let epoch = match claim {
        Ok(Claim::Granted(epoch)) => epoch,
        Ok(Claim::OwnedBy(owner)) => {
            return Err(Failure::Elsewhere {
                session: id,
                owner: Some(owner),
            });
        }
        Err(WriteError::Refused(Refusal::NotMember)) => return Err(Failure::moved(id)),
        Err(error) => return Err(error.into()),
    };
    // From here on there are no other writers. The records read below are also on the database's synchronous standbys,
    // because the claim is a later commit.
    let ((session, snapshot), requests, head) = tokio::try_join!(
        catch_up(store, id, early),
        stored_requests::page(store, id, None).map_err(Failure::from),
        store.head(id).map_err(Failure::from)
    )?;
    let head = head.ok_or(Failure::SessionNotFound(id))?;
    Ok(Loaded {
        session,
        epoch,
        requests,
        snapshot,
        content_bytes: head.content_bytes,
    })
}

/// Updates the session that was loaded while another owner could still write. Loads the session if there is none.
async fn catch_up(
    store: &dyn EventStore,
    id: SessionId,
    early: Option<Result<(Session, Sequence), Failure>>,
) -> Result<(Session, Sequence), Failure> {
    let Some(Ok((session, snapshot))) = early else {
        return restore_at_head(store, id).await;
    };
    match store.read(id, session.sequence, FIRST_PAGE).await {
        // The log was compacted in the meantime, so there is a later snapshot.
        Err(ReadError::Compacted { .. }) => restore_at_head(store, id).await,
        page => Ok((fold_from(store, id, Some(session), page?).await?, snapshot)),
    }
}

/// Returns the session at the end of its log, and the sequence of its snapshot.
async fn restore_at_head(store: &dyn EventStore, id: SessionId) -> Result<(Session, Sequence), Failure> {
    let snapshot = store.snapshot(id).await;
    let after = match &snapshot {
        Ok(Some(snapshot)) => snapshot.sequence,
        Ok(None) | Err(_) => Sequence::ZERO,
    };
    let (base, mut page) = tokio::join!(base(id, snapshot), store.read(id, after, FIRST_PAGE));
    let (session, unusable) = match base? {
        Base::Beginning => (None, None),
        Base::Snapshot(session) => (Some(*session), None),
        Base::Unusable(failure) => {
            tracing::warn!(session = %id, %failure, "a snapshot cannot be used; the log is replayed");
            if after > Sequence::ZERO {
                page = store.read(id, Sequence::ZERO, FIRST_PAGE).await;
            }
            (None, Some(failure))
        }
    };
    let snapshot = session.as_ref().map_or(Sequence::ZERO, |session| session.sequence);
    let page = match page {
        Err(ReadError::Compacted { oldest, .. }) => {
            // Compacted records exist only in the snapshot.
            let missing = || Failure::Corrupt(format!("session {id} is compacted up to {oldest} without a snapshot"));
            return Err(unusable.unwrap_or_else(missing));
        }
        read => read?,
    };
    Ok((fold_from(store, id, session, page).await?, snapshot))
}

/// Folds this page, which was requested with [`FIRST_PAGE`], and the rest of the log into the session. Reads the next
/// page while it folds a page.
async fn fold_from(
    store: &dyn EventStore,
    id: SessionId,
    mut session: Option<Session>,
    mut page: Vec<StoredRecord>,
) -> Result<Session, Failure> {
    let mut wanted = FIRST_PAGE;
    // A partial page is the last one.
    while let Some(last) = page.last().filter(|_| page.len() >= wanted) {
        let after = last.sequence;
        wanted = MAX_PAGE;
        let (next, folded) = tokio::join!(store.read(id, after, wanted), fold_page(id, session, &page));
        (session, page) = (folded?, next?);
    }
    let session = fold_page(id, session, &page).await?;
    session.ok_or(Failure::SessionNotFound(id))
}

/// Folds these records into the session. Stays on this worker thread for cache locality, but yields to other tasks in
/// between.
async fn fold_page(
    id: SessionId,
    mut session: Option<Session>,
    records: &[StoredRecord],
) -> Result<Option<Session>, Failure> {
    for (index, records) in records.chunks(YIELD_AFTER).enumerate() {
        if index > 0 {
            yield_now().await;
        }
        session = fold(id, session, records)?;
    }
    Ok(session)
}

fn fold(id: SessionId, mut session: Option<Session>, records: &[StoredRecord]) -> Result<Option<Session>, Failure> {
    for stored in records {
        let recorded = record::decode_record(id, &stored.bytes)?;
        match &mut session {
            Some(session) => evolve::evolve(session, &recorded),
            none => *none = evolve::open(id, &recorded),
        }
    }
    Ok(session)
}

/// Decides where folding begins, given the store's snapshot.
async fn base(id: SessionId, snapshot: Result<Option<Snapshot>, ReadError>) -> Result<Base, Failure> {
    let snapshot = match snapshot {
        Ok(Some(snapshot)) => snapshot,
        Ok(None) => return Ok(Base::Beginning),
        Err(error @ (ReadError::CorruptSide { .. } | ReadError::Corrupt { .. } | ReadError::Compacted { .. })) => {
            return Ok(Base::Unusable(error.into()));
        }
        Err(error @ ReadError::Engine(_)) => return Err(error.into()),
    };
    // The snapshot may be large, so it is decoded on a blocking thread.
    let decoded = spawn_blocking(move || decode_snapshot(id, snapshot.sequence, &snapshot.bytes)).await;
    Ok(match decoded {
        Ok(Ok(session)) => Base::Snapshot(Box::new(session)),
        Ok(Err(error)) => Base::Unusable(error.into()),
        Err(error) => Base::Unusable(Failure::Corrupt(format!("the snapshot of session {id}: {error}"))),
    })
}
